/*
 * Loads weir late, as plug-ins and language bindings do: there must be room left for its thread-local data, it must
 * work on threads that existed before it, and a thread that has a handle may end after weir was unloaded, whether weir
 * was closed before or not.
 */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <weir/weir.h>

typedef struct calls {
    weir_status (*open)(const weir_settings *settings);
    weir_status (*alloc)(size_t bytes, void **out);
    weir_status (*free)(void *pointer);
    weir_status (*close)(void);
    weir_status (*handle_register)(const weir_handle_ops *ops, weir_handle_kind *kind);
    weir_status (*handle_get)(weir_handle_kind kind, void **handle);
} calls;

static calls weir;
static weir_handle_kind kind;
static pthread_barrier_t loaded, used, unloaded;

static int create(void *user, int device, void **handle)
{
    (void)user, (void)device;
    *handle = malloc(16);
    return *handle ? 0 : 1;
}

static int destroy(void *user, void *handle)
{
    (void)user;
    free(handle);
    return 0;
}

static void *allocate(void *failed)
{
    pthread_barrier_wait(&loaded);
    void *block = NULL, *handle = NULL;
    if (!weir.alloc || weir.alloc(1000, &block) != WEIR_OK || !block || weir.free(block) != WEIR_OK) *(int *)failed = 1;
    if (weir.free && weir.free(&block) != WEIR_ERR_UNKNOWN_POINTER) *(int *)failed = 1;
    if (!weir.handle_get || weir.handle_get(kind, &handle) != WEIR_OK || !handle) *(int *)failed = 1;
    pthread_barrier_wait(&used);
    pthread_barrier_wait(&unloaded);
    return NULL;
}

static int load(const char *path, void **library)
{
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!*library) {
        fprintf(stderr, "%s\n", dlerror());
        return 1;
    }
    *(void **)&weir.open = dlsym(*library, "weir_open");
    *(void **)&weir.alloc = dlsym(*library, "weir_alloc");
    *(void **)&weir.free = dlsym(*library, "weir_free");
    *(void **)&weir.close = dlsym(*library, "weir_close");
    *(void **)&weir.handle_register = dlsym(*library, "weir_handle_kind_register");
    *(void **)&weir.handle_get = dlsym(*library, "weir_handle_get");
    if (!weir.open || !weir.alloc || !weir.free || !weir.close || !weir.handle_register || !weir.handle_get) return 1;
    const weir_handle_ops ops = { WEIR_HANDLE_OPS_INIT, .name = "late", .create = create, .destroy = destroy };
    weir_settings settings = WEIR_SETTINGS_INIT;
    settings.backend = "host";
    return weir.open(&settings) != WEIR_OK || weir.handle_register(&ops, &kind) != WEIR_OK;
}

int main(int argc, char **argv)
{
    int failed = 0, thread_failed = 0;
    pthread_t thread;
    pthread_barrier_init(&loaded, NULL, 2);
    pthread_barrier_init(&used, NULL, 2);
    pthread_barrier_init(&unloaded, NULL, 2);
    if (argc < 2 || pthread_create(&thread, NULL, allocate, &thread_failed)) return 1;

    void *library = NULL;
    failed = load(argv[1], &library);
    pthread_barrier_wait(&loaded);
    pthread_barrier_wait(&used);
    if (library) {
        /* "open": the library is unloaded while in use; the thread gives its handle back all the same. */
        const int stay_open = argc > 2 && strcmp(argv[2], "open") == 0;
        failed |= !stay_open && weir.close && weir.close() != WEIR_OK;
        failed |= dlclose(library) != 0;
    }
    pthread_barrier_wait(&unloaded);
    pthread_join(thread, NULL);
    failed |= thread_failed;
    if (failed) fprintf(stderr, "weir loaded late does not work\n");
    return failed;
}
