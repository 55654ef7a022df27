/*
 * Two streams of one device: memory made on one, used on the other. README.md shows this file.
 */
#include <stdio.h>
#include <weir/weir.h>

int main(void)
{
    weir_stream compute, copy;
    WEIR_CHECK(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &compute));
    WEIR_CHECK(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &copy));
    WEIR_CHECK(weir_stream_set_current(compute)); /* for this thread */

    enum { BYTES = 1 << 20 };
    static unsigned char result[BYTES];
    void *x;
    WEIR_CHECK(weir_alloc(BYTES, &x));             /* this device, this stream */
    WEIR_CHECK(weir_fill(x, 42, BYTES, compute));  /* work on the stream may use it at once */
    WEIR_CHECK(weir_stream_wait(copy, compute));   /* the other stream must wait for that work, */
    WEIR_CHECK(weir_copy(result, x, BYTES, copy)); /* then it may read, */
    WEIR_CHECK(weir_record_stream(x, copy));       /* and says so: */
    WEIR_CHECK(weir_free(x));                      /* the block is not reused before the copy is done */
    WEIR_CHECK(weir_stream_synchronize(copy));

    weir_memory_stats stats = { .size = sizeof stats };
    WEIR_CHECK(weir_stats_get(0, &stats));
    printf("result %d, peak %lld bytes in use, %lld reserved\n", result[BYTES - 1],
           (long long)stats.allocated_bytes[WEIR_STAT_ALL].peak, (long long)stats.reserved_bytes[WEIR_STAT_ALL].peak);
    return result[BYTES - 1] == 42 ? 0 : 1;
}
