/*
 * worker: threads of weir's own. The program's signal handlers do not run on them.
 */
#ifndef WR_BASE_WORKER_H
#define WR_BASE_WORKER_H

#include <pthread.h>

/* 0, or an error number. The caller must join the worker. */
int wr_worker_start(pthread_t *worker, void *(*run)(void *), void *argument);

#endif
