/* weir info: what the library would use here, and why. */
#include "weir/weir.h"

#include "cli.h"
#include "command.h"
#include "grow.h"
#include "output/file.h"
#include "output/json.h"
#include "output/table.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char help[] = "usage: weir info [--json FILE]\n\n"
                           "Shows the back end in use, its devices, and every option with its value and where that\n"
                           "came from.\n\n"
                           "      --json FILE  the same as JSON; - is stdout, instead of the text\n"
                           "  -h, --help       this text\n";

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
    if (optind < argc) return cli_usage("info", "'%s' is not expected: info takes options only", argv[optind]);
    if (!cli_spares_traces("info", NULL, 0, json, NULL)) return COMMAND_USAGE;

    bool good = inform(json);
    (void)weir_close();
    return good ? 0 : COMMAND_FAILED;
}
