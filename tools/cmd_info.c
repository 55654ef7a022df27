/* weir info: what the library would use on this machine, and why. */
#include "weir/weir.h"

#include "cli.h"
#include "command.h"
#include "grow.h"
#include "output/file.h"
#include "output/json.h"
#include "output/table.h"
#include "output/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] =
    "usage: weir info [--json FILE]\n\n"
    "Shows the back end in use, its devices, the libraries whose handles it can pool, and every\n"
    "option with its value and where that came from.\n\n"
    "      --json FILE  the same as JSON; - is stdout, instead of the text\n"
    "  -h, --help       this text\n";

/* A library whose handles weir pools. Looking it up creates no handle and needs no device. */
typedef struct vendor_library {
    weir_handle_kind kind;
    const char *name;
    weir_handle_kind_info info; /* all empty when it was not loaded */
    char error[1024];           /* why it was not loaded; "" when it was */
} vendor_library;

static vendor_library libraries[] = {
    { .kind = WEIR_CUBLAS, .name = "cublas" },
    { .kind = WEIR_CUBLASLT, .name = "cublaslt" },
    { .kind = WEIR_CUSPARSE, .name = "cusparse" },
    { .kind = WEIR_CUSOLVER_DN, .name = "cusolver_dn" },
    { .kind = WEIR_CUSOLVER_SP, .name = "cusolver_sp" },
    { .kind = WEIR_CUDNN, .name = "cudnn" },
    { .kind = WEIR_CUDSS, .name = "cudss" },
    { .kind = WEIR_CURAND, .name = "curand" },
    { .kind = WEIR_CUTENSOR, .name = "cutensor" },
    { .kind = WEIR_MIOPEN, .name = "miopen" },
    { .kind = WEIR_ROCBLAS, .name = "rocblas" },
    { .kind = WEIR_HIPBLAS, .name = "hipblas" },
    { .kind = WEIR_HIPBLASLT, .name = "hipblaslt" },
    { .kind = WEIR_ROCSPARSE, .name = "rocsparse" },
    { .kind = WEIR_HIPSPARSE, .name = "hipsparse" },
    { .kind = WEIR_HIPSOLVER, .name = "hipsolver" },
    { .kind = WEIR_ROCRAND, .name = "rocrand" },
};
enum { LIBRARIES = sizeof libraries / sizeof *libraries };

static void find_libraries(void)
{
    for (vendor_library *l = libraries; l < libraries + LIBRARIES; l++) {
        l->info = (weir_handle_kind_info){ .size = sizeof l->info };
        if (weir_handle_kind_info_get(l->kind, &l->info) != WEIR_OK)
            snprintf(l->error, sizeof l->error, "%s", weir_error_text());
    }
}

/* No file of that name exists: every attempt, one line each in the error, failed for that reason. */
static bool is_absent(const vendor_library *l)
{
    static const char absent[] = ": cannot open shared object file: No such file or directory";
    const char *line = strchr(l->error, '\n');
    if (!line || !strstr(l->error, " not found;")) return false;
    for (; line; line = strchr(line + 1, '\n')) {
        const char *reason = strchr(line + 1, ':');
        if (!reason || strncmp(reason, absent, sizeof absent - 1) != 0) return false;
    }
    return true;
}

static void print_libraries(void)
{
    static const char *const titles[] = { "LIBRARY", "VERSION", "FILE" };
    table t;
    size_t found = 0, absent = 0;
    table_init(&t, "lll");
    table_titles(&t, titles);
    for (const vendor_library *l = libraries; l < libraries + LIBRARIES; l++) {
        if (l->error[0]) continue;
        table_cell(&t, "%s", l->name);
        table_cell(&t, "%s", l->info.version[0] ? l->info.version : "-");
        table_cell(&t, "%s", l->info.library);
        found++;
    }
    if (found) table_print(&t, stdout);
    table_release(&t);
    for (const vendor_library *l = libraries; l < libraries + LIBRARIES; l++)
        if (l->error[0] && !is_absent(l)) text_printf(stdout, "%s does not load: %s\n", l->name, l->error);
    for (const vendor_library *l = libraries; l < libraries + LIBRARIES; l++)
        if (is_absent(l)) printf("%s%s", absent++ ? ", " : "Not found: ", l->name);
    if (absent) putchar('\n');
}

static void print_devices(const weir_device_info *devices, int count)
{
    static const char *const titles[] = { "DEVICE", "NAME", "MEMORY", "FREE", "GRANULARITY", "PRIORITIES", "COMPUTE" };
    table t;
    char total[TABLE_SIZE], available[TABLE_SIZE], granularity[TABLE_SIZE];
    table_init(&t, "rlrrrrr");
    table_titles(&t, titles);
    for (int i = 0; i < count; i++) {
        const weir_device_info *d = &devices[i];
        table_cell(&t, "%d", i);
        table_cell(&t, "%s", d->name);
        table_cell(&t, "%s", table_size(d->total_memory, total));
        table_cell(&t, "%s", table_size(d->free_memory, available));
        table_cell(&t, "%s", d->memory_granularity ? table_size(d->memory_granularity, granularity) : "-");
        table_cell(&t, "%" PRId32 "..%" PRId32, d->priority_greatest, d->priority_least);
        if (d->compute_major)
            table_cell(&t, "%" PRIu32 ".%" PRIu32, d->compute_major, d->compute_minor);
        else
            table_cell(&t, "-");
    }
    table_print(&t, stdout);
    table_release(&t);
}

static void print_options(void)
{
    static const char *const titles[] = { "OPTION", "VALUE", "FROM", "MEANING" };
    table t;
    table_init(&t, "llll");
    table_titles(&t, titles);
    weir_option_info option = { .size = sizeof option };
    for (unsigned i = 0; weir_option_get(i, &option) == WEIR_OK; i++) {
        table_cell(&t, "%s", option.name);
        table_cell(&t, "%s", option.value[0] ? option.value : "-");
        table_cell(&t, "%s", option.source);
        table_cell(&t, "%s", option.help);
    }
    table_print(&t, stdout);
    table_release(&t);
}

static json_t *devices_json(const weir_device_info *devices, int count)
{
    json_t *array = json_array();
    for (int i = 0; i < count; i++) {
        const weir_device_info *d = &devices[i];
        json_t *object = json_object();
        json_add(object, "device", json_integer(i));
        json_add(object, "name", json_text(d->name));
        json_add(object, "total_memory", json_count(d->total_memory));
        json_add(object, "free_memory", json_count(d->free_memory));
        json_add(object, "memory_granularity", json_count(d->memory_granularity));
        json_add(object, "priority_greatest", json_integer(d->priority_greatest));
        json_add(object, "priority_least", json_integer(d->priority_least));
        json_add(object, "compute_major", json_integer(d->compute_major));
        json_add(object, "compute_minor", json_integer(d->compute_minor));
        json_push(array, object);
    }
    return array;
}

static json_t *libraries_json(void)
{
    json_t *array = json_array();
    for (const vendor_library *l = libraries; l < libraries + LIBRARIES; l++) {
        json_t *object = json_object();
        json_add(object, "name", json_string(l->name));
        json_add(object, "library", l->error[0] ? json_null() : json_text(l->info.library));
        json_add(object, "version", l->info.version[0] ? json_text(l->info.version) : json_null());
        json_add(object, "error", l->error[0] ? json_text(l->error) : json_null());
        json_push(array, object);
    }
    return array;
}

static json_t *options_json(void)
{
    json_t *array = json_array();
    weir_option_info option = { .size = sizeof option };
    for (unsigned i = 0; weir_option_get(i, &option) == WEIR_OK; i++) {
        json_t *object = json_object();
        json_add(object, "name", json_string(option.name));
        json_add(object, "value", json_text(option.value));
        json_add(object, "source", json_string(option.source));
        json_add(object, "environment", json_string(option.environment));
        json_add(object, "help", json_string(option.help));
        json_push(array, object);
    }
    return array;
}

static bool write_json(const char *path, const char *backend, const weir_device_info *devices, int count)
{
    json_t *object = json_object();
    json_add(object, "version", json_string(weir_version()));
    json_add(object, "backend", json_string(backend));
    json_add(object, "devices", devices_json(devices, count));
    json_add(object, "libraries", libraries_json());
    json_add(object, "options", options_json());
    bool good = json_write("info", object, path);
    json_decref(object);
    return good;
}

static bool show(const char *json, const char *backend, const weir_device_info *devices, int count)
{
    bool only_json = output_is_stdout(json);
    if (!only_json) {
        printf("weir %s, back end %s\n\n", weir_version(), backend);
        print_devices(devices, count);
        putchar('\n');
        print_libraries();
        putchar('\n');
        print_options();
    }
    return !json || write_json(json, backend, devices, count);
}

static bool inform(const char *json)
{
    const char *backend = NULL;
    int count = 0;
    weir_status status = weir_backend_name(&backend);
    if (status == WEIR_OK) status = weir_device_count(&count);

    weir_device_info *devices = grow_new((size_t)count, sizeof *devices);
    for (int i = 0; status == WEIR_OK && i < count; i++) {
        devices[i].size = sizeof devices[i];
        status = weir_device_info_get(i, &devices[i]);
    }
    bool good = status == WEIR_OK;
    if (good) find_libraries();
    if (good)
        good = show(json, backend, devices, count);
    else
        cli_say("info", "%s", weir_error_text());
    free(devices);
    return good;
}

int cmd_info(int argc, char **argv)
{
    static const struct option options[] = {
        { "json", required_argument, NULL, 'j' },
        { "help", no_argument, NULL, 'h' },
        { 0 },
    };
    const char *json = NULL;
    for (int option; (option = cli_option("info", argc, argv, "h", options)) != -1;) {
        switch (option) {
        case 'j': json = optarg; break;
        case 'h': fputs(help, stdout); return 0;
        default: return COMMAND_USAGE;
        }
    }
    if (optind < argc) return cli_usage("info", "unexpected argument '%s'; info takes options only", argv[optind]);
    if (!cli_spares_traces("info", NULL, 0, json, NULL)) return COMMAND_USAGE;

    bool good = inform(json);
    (void)weir_close();
    return good ? 0 : COMMAND_FAILED;
}
