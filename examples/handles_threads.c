/*
 * Library handles in a program with threads. The library here is this file's own, a "dot product library" whose
 * handles are not thread safe, as most libraries' are not: each thread needs one, bound to the stream it works on.
 * weir makes them when they are first needed, binds them, and hands them on when a thread ends.
 */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <weir/weir.h>

/* ---- the library ------------------------------------------------------------------------------------------------- */

typedef struct dot_handle {
    void *stream;
    double sum; /* the handle's scratch, which is why two threads must not share one */
} dot_handle;

static double dot(dot_handle *handle, const double *x, const double *y, int count)
{
    handle->sum = 0;
    for (int i = 0; i < count; i++) handle->sum += x[i] * y[i];
    return handle->sum;
}

/* ---- how weir makes, binds and unmakes its handles --------------------------------------------------------------- */

static int create(void *user, int device, void **handle)
{
    (void)user, (void)device;
    *handle = calloc(1, sizeof(dot_handle));
    return *handle ? 0 : 1; /* anything but 0 is reported as the library's code */
}

static int destroy(void *user, void *handle)
{
    (void)user;
    free(handle);
    return 0;
}

static int bind(void *user, void *handle, void *native_stream)
{
    (void)user;
    ((dot_handle *)handle)->stream = native_stream;
    return 0;
}

/* ---- the program ------------------------------------------------------------------------------------------------- */

enum { WAVES = 3, THREADS = 4, COUNT = 1000 };

static weir_handle_kind dots;

static void *work(void *result)
{
    double x[COUNT];
    weir_stream stream;
    WEIR_CHECK(weir_stream_from_pool(0, WEIR_PRIORITY_DEFAULT, &stream));
    WEIR_CHECK(weir_stream_set_current(stream)); /* for this thread */
    for (int i = 0; i < COUNT; i++) x[i] = i % 10;

    for (int i = 0; i < 10000; i++) {
        void *handle;
        WEIR_CHECK(weir_handle_get(dots, &handle)); /* this thread's own; nothing to give back */
        *(double *)result = dot(handle, x, x, COUNT);
    }
    return NULL; /* the handle goes to the next thread that needs one */
}

int main(void)
{
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "dots", .create = create, .destroy = destroy,
                                  .bind = bind };
    int wrong = 0;
    WEIR_CHECK(weir_handle_kind_register(&ops, &dots));

    for (int wave = 0; wave < WAVES; wave++) {
        pthread_t threads[THREADS];
        double results[THREADS] = { 0 };
        for (int i = 0; i < THREADS; i++)
            if (pthread_create(&threads[i], NULL, work, &results[i]) != 0) return 1;
        for (int i = 0; i < THREADS; i++) {
            pthread_join(threads[i], NULL);
            if (results[i] != 28500) wrong++;
        }
    }

    weir_handle_stats stats = { .size = sizeof stats };
    WEIR_CHECK(weir_handle_stats_get(dots, 0, &stats));
    printf("%d threads got a handle %llu times: %llu were created, %llu taken over, %llu gets were hits\n",
           WAVES * THREADS, (unsigned long long)(stats.created + stats.reuses + stats.hits),
           (unsigned long long)stats.created, (unsigned long long)stats.reuses, (unsigned long long)stats.hits);
    WEIR_CHECK(weir_close()); /* destroys the handles; a program that just exits leaves them to the system */
    return wrong || stats.created > THREADS;
}
