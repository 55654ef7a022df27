#include "unit/host.h"

#include <pthread.h>
#include <stdatomic.h>

#define THREADS 4
#define ROUNDS 200

static atomic_int callbacks;

static void count_up(void *argument)
{
    (void)argument;
    atomic_fetch_add(&callbacks, 1);
}

#define MUST(call)                                                                                                     \
    do {                                                                                                               \
        if ((call) != WEIR_OK) return "failed: " #call;                                                                \
    } while (0)

/* Each thread has memory and streams of its own; events go round a ring: each thread waits for its neighbour's. */
static void *shared_event[THREADS];

static const char *one_round(int self, void *stream, int round)
{
    void *base, *own;
    size_t bytes = (size_t)(1 + round % 5) * MIB;
    int device = self % 2;
    MUST(b->segment_alloc(device, bytes, &base));
    MUST(b->event_create(device, &own));
    MUST(b->fill(device, stream, base, (unsigned char)round, 4096));
    MUST(b->stream_callback(device, stream, count_up, NULL));
    MUST(b->event_record(device, own, stream));
    MUST(b->event_record(device, shared_event[self], stream));
    MUST(b->stream_wait(device, stream, shared_event[(self + 1) % THREADS]));
    weir_status status = b->event_query(device, own);
    if (status != WEIR_OK && status != WEIR_ERR_NOT_READY) return "event_query";
    MUST(b->event_synchronize(device, own));
    if (*(unsigned char *)base != (unsigned char)round) return "the fill is not there";
    MUST(b->event_destroy(device, own));
    MUST(b->segment_free(device, base, bytes));
    return NULL;
}

static void *run(void *argument)
{
    int self = (int)(intptr_t)argument, device = self % 2;
    const char *problem = NULL;
    for (int round = 0; round < ROUNDS && problem == NULL; round++) {
        void *stream;
        if (b->stream_create(device, 0, &stream) != WEIR_OK) return (void *)(uintptr_t)"stream_create";
        problem = one_round(self, stream, round);
        if (b->stream_destroy(device, stream) != WEIR_OK) return (void *)(uintptr_t)"stream_destroy";
    }
    return (void *)(uintptr_t)problem;
}

static void everything_at_once_from_several_threads(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    atomic_store(&callbacks, 0);
    for (int i = 0; i < THREADS; i++) shared_event[i] = new_event(i % 2);
    for (int i = 0; i < THREADS; i++) assert_int_equal(pthread_create(&thread[i], NULL, run, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *problem;
        pthread_join(thread[i], &problem);
        if (problem != NULL) fail_msg("thread %d: %s", i, (const char *)problem);
    }
    ok(b->device_synchronize(0));
    ok(b->device_synchronize(1));
    assert_int_equal(atomic_load(&callbacks), THREADS * ROUNDS);
}

static void *capture_rounds(void *argument)
{
    int device = (int)(intptr_t)argument % 2;
    void *stream, *graph, *exec, *memory;
    if (b->stream_create(device, 0, &stream) != WEIR_OK) return (void *)(uintptr_t)"stream_create";
    if (b->segment_alloc(device, MIB, &memory) != WEIR_OK) return (void *)(uintptr_t)"segment_alloc";
    for (int round = 1; round <= ROUNDS; round++) {
        weir_status status = b->capture_begin(device, stream, WEIR_CAPTURE_GLOBAL);
        if (status == WEIR_OK) status = b->fill(device, stream, memory, (unsigned char)round, 16);
        if (status == WEIR_OK) status = b->capture_end(device, stream, &graph);
        if (status == WEIR_OK) status = b->graph_instantiate(device, graph, &exec);
        if (status == WEIR_OK) status = b->graph_launch(device, exec, stream);
        if (status == WEIR_OK) status = b->stream_synchronize(device, stream);
        if (status == WEIR_OK) status = b->graph_exec_destroy(device, exec);
        if (status == WEIR_OK) status = b->graph_destroy(device, graph);
        if (status != WEIR_OK || *(unsigned char *)memory != (unsigned char)round)
            return (void *)(uintptr_t)"a capture of one thread was harmed by another's";
    }
    return NULL;
}

static void captures_of_several_threads_do_not_meet(void **state)
{
    (void)state;
    pthread_t thread[THREADS];
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, capture_rounds, (void *)(intptr_t)i), 0);
    for (int i = 0; i < THREADS; i++) {
        void *problem;
        pthread_join(thread[i], &problem);
        if (problem != NULL) fail_msg("thread %d: %s", i, (const char *)problem);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        host_test(everything_at_once_from_several_threads),
        host_test(captures_of_several_threads_do_not_meet),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
