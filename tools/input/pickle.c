#include "pickle.h"

#include "grow.h"
#include "pickle_atoms.h"
#include "pickle_text.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

/* The opcode's argument. */
typedef struct argument {
    uint64_t number;
    const uint8_t *bytes; /* NULL: longer than ATOM_STRING_MAX, skipped */
    size_t length;
} argument;

typedef struct pickle {
    source *s;
    const trace_limits *limits;
    const pickle_builder *builder;
    uint64_t op_offset;
    uint8_t op;
    argument argument;
    bool stopped;

    pickle_value *stack;
    size_t count, capacity;
    size_t *marks; /* stack heights */
    size_t mark_count, mark_capacity;
    uint32_t *memo; /* atoms */
    size_t memo_used, memo_count, memo_capacity;
    atom_table atoms;
} pickle;

/* Kinds of arguments. The sized ones come last: a length of 1, 4 or 8 bytes, then that many bytes. */
typedef enum argument_kind {
    ARG_NONE,
    ARG_U1,
    ARG_U2,
    ARG_I4,
    ARG_U4,
    ARG_U8,
    ARG_LINE,
    ARG_SIZED1,
    ARG_SIZED4,
    ARG_SIZED8
} argument_kind;

static const uint8_t argument_bytes[] = { 0, 1, 2, 4, 4, 8, 0, 1, 4, 8 };

typedef struct opcode {
    const char *name;       /* NULL: no such opcode */
    bool (*run)(pickle *p); /* NULL: not data */
    argument_kind argument;
} opcode;

static const opcode opcodes[256];

#define FAIL(p, ...) source_fail((p)->s, (p)->op_offset, __VA_ARGS__)
#define FAIL_OPCODE(p, format, ...)                                                                                    \
    FAIL((p), "opcode 0x%02x (%s) " format, (p)->op, opcodes[(p)->op].name, ##__VA_ARGS__)

static bool fail_truncated(pickle *p)
{
    return FAIL(p, "the file ends inside opcode 0x%02x (%s): it is not complete", p->op, opcodes[p->op].name);
}

/* ---- stack ------------------------------------------------------------------------------------------------------- */

static bool push(pickle *p, pickle_value value)
{
    if (p->count >= p->limits->stack)
        return FAIL(p, "more than %" PRIu64 " values on the stack, the limit", p->limits->stack);
    if (!grow_try((void **)&p->stack, &p->capacity, p->count + 1, sizeof *p->stack)) return source_fail_memory(p->s);
    p->stack[p->count++] = value;
    return true;
}

static bool push_atom(pickle *p, uint32_t atom)
{
    return push(p, p->atoms.values[atom]);
}

static void drop(pickle *p, pickle_value value)
{
    if ((value.type == PICKLE_LIST || value.type == PICKLE_DICT) && value.node)
        p->builder->drop(p->builder->user, value);
}

static void drop_above(pickle *p, size_t height)
{
    while (p->count > height) drop(p, p->stack[--p->count]);
}

/* The height below which opcodes may not pop. */
static size_t floor_height(const pickle *p)
{
    return p->mark_count ? p->marks[p->mark_count - 1] : 0;
}

static bool need_values(pickle *p, size_t wanted)
{
    size_t have = p->count - floor_height(p);
    if (have >= wanted) return true;
    return FAIL_OPCODE(p, "needs %zu values, the stack has %zu", wanted, have);
}

static bool pop_mark(pickle *p, size_t *height)
{
    if (p->mark_count == 0) return FAIL_OPCODE(p, "without a MARK before it");
    *height = p->marks[--p->mark_count];
    return true;
}

/* The container under the values above `height`. */
static bool container_under(pickle *p, size_t height, uint32_t type, pickle_value **out)
{
    static const char *const names[] = { [PICKLE_LIST] = "list", [PICKLE_DICT] = "dict", [PICKLE_SET] = "set" };
    if (height <= floor_height(p) || p->stack[height - 1].type != type)
        return FAIL_OPCODE(p, "needs a new %s below its values", names[type]);
    *out = &p->stack[height - 1];
    return true;
}

/* ---- scalars ----------------------------------------------------------------------------------------------------- */

static bool push_number(pickle *p, int64_t number)
{
    return push(p, (pickle_value){ .type = PICKLE_INT, .number = number });
}

static bool op_none(pickle *p)
{
    return push(p, (pickle_value){ .type = PICKLE_NONE });
}

static bool push_bool(pickle *p, bool value)
{
    return push(p, (pickle_value){ .type = PICKLE_BOOL, .boolean = value });
}

/* NEWTRUE and NEWFALSE */
static bool op_bool(pickle *p)
{
    return push_bool(p, p->op == 0x88);
}

static bool op_number(pickle *p)
{
    return push_number(p, (int64_t)p->argument.number);
}

static bool op_long(pickle *p)
{
    if (p->argument.length == 0) return push_number(p, 0);
    if (p->argument.length == 9 && p->argument.bytes[8] == 0 && p->argument.bytes[7] >= 0x80)
        return push(p, (pickle_value){ .type = PICKLE_UINT, .big = little_endian(p->argument.bytes, 8) });
    if (!p->argument.bytes || p->argument.length > 8) return push_atom(p, ATOM_WIDE_NUMBER);

    uint64_t value = little_endian(p->argument.bytes, p->argument.length);
    unsigned unused = 64 - 8 * (unsigned)p->argument.length;
    return push_number(p, (int64_t)(value << unused) >> unused);
}

/* INT and LONG of protocol 0; INT's "00" and "01" are False and True. */
static bool op_decimal(pickle *p)
{
    size_t length = p->argument.length;
    if (p->op == 'I' && length == 2 && p->argument.bytes[0] == '0' && (p->argument.bytes[1] | 1) == '1')
        return push_bool(p, p->argument.bytes[1] == '1');
    if (p->op == 'L' && length > 0 && p->argument.bytes[length - 1] == 'L') length--;

    pickle_value value;
    bool wide;
    if (!pickle_text_number(p->argument.bytes, length, &value, &wide))
        return FAIL(p, "\"%.*s\" is not a decimal number", (int)(length < 32 ? length : 32),
                    (const char *)p->argument.bytes);
    return wide ? push_atom(p, ATOM_WIDE_NUMBER) : push(p, value);
}

static bool op_float(pickle *p)
{
    double value;
    if (!pickle_text_float(p->argument.bytes, p->argument.length, &value))
        return FAIL(p, "opcode 0x46 (FLOAT) is not followed by a number");
    return push(p, (pickle_value){ .type = PICKLE_FLOAT, .real = value });
}

static bool op_binfloat(pickle *p)
{
    uint64_t bits = __builtin_bswap64(p->argument.number); /* the one big-endian argument */
    double value;
    memcpy(&value, &bits, sizeof value);
    return push(p, (pickle_value){ .type = PICKLE_FLOAT, .real = value });
}

static bool push_string(pickle *p, const void *text, size_t length)
{
    pickle_value value;
    return atoms_string(&p->atoms, text, length, &value) && push(p, value);
}

static bool op_string(pickle *p)
{
    return p->argument.bytes ? push_string(p, p->argument.bytes, p->argument.length) : push_atom(p, ATOM_LONG_STRING);
}

static bool op_text(pickle *p)
{
    char decoded[2 * ATOM_STRING_MAX];
    size_t length;
    if (p->argument.length > ATOM_STRING_MAX) return push_atom(p, ATOM_LONG_STRING);
    bool good = p->op == 'V' ? pickle_text_unicode(p->argument.bytes, p->argument.length, decoded, &length)
                             : pickle_text_quoted(p->argument.bytes, p->argument.length, decoded, &length);
    if (!good) return FAIL_OPCODE(p, "has a string with bad quotes or escapes");
    return push_string(p, decoded, length);
}

/* Bytes, and the empty tuple: their content does not matter. */
static bool op_opaque(pickle *p)
{
    return push_atom(p, p->op == ')' ? ATOM_TUPLE : ATOM_BYTES);
}

/* ---- containers -------------------------------------------------------------------------------------------------- */

static bool op_mark(pickle *p)
{
    if (p->mark_count >= p->limits->depth)
        return FAIL(p, "nested deeper than %" PRIu64 ", the limit", p->limits->depth);
    if (!grow_try((void **)&p->marks, &p->mark_capacity, p->mark_count + 1, sizeof *p->marks))
        return source_fail_memory(p->s);
    p->marks[p->mark_count++] = p->count;
    return true;
}

static bool op_pop(pickle *p)
{
    if (p->mark_count && p->count == floor_height(p)) {
        p->mark_count--;
        return true;
    }
    if (!need_values(p, 1)) return false;
    drop_above(p, p->count - 1);
    return true;
}

static bool op_pop_mark(pickle *p)
{
    size_t height;
    if (!pop_mark(p, &height)) return false;
    drop_above(p, height);
    return true;
}

static uint32_t container_atom(uint32_t type)
{
    return type == PICKLE_LIST ? ATOM_LIST : type == PICKLE_DICT ? ATOM_DICT : ATOM_SET;
}

static bool is_container(pickle_value value)
{
    return value.type == PICKLE_LIST || value.type == PICKLE_DICT || value.type == PICKLE_SET;
}

static bool op_dup(pickle *p)
{
    if (!need_values(p, 1)) return false;
    pickle_value top = p->stack[p->count - 1];
    return is_container(top) ? push_atom(p, container_atom(top.type)) : push(p, top);
}

static bool op_empty(pickle *p)
{
    uint32_t type = p->op == ']' ? PICKLE_LIST : p->op == '}' ? PICKLE_DICT : PICKLE_SET;
    return push(p, (pickle_value){ .type = type });
}

/* Puts the builder's token in place of a finished container that the memo has (tag: 1 + its index there). */
static bool leave_token(pickle *p, pickle_value value)
{
    bool container = value.type == PICKLE_LIST || value.type == PICKLE_DICT;
    if (!container || !value.tag || !value.node) return true;
    pickle_value token = { .type = PICKLE_NONE };
    if (!p->builder->token(p->builder->user, value, &token)) return false;
    return token.type != PICKLE_TOKEN || atoms_token(&p->atoms, token, &p->memo[value.tag - 1]);
}

/* Gives the values above `height` to the list under them. */
static bool append_above(pickle *p, size_t height)
{
    pickle_value *list;
    if (!container_under(p, height, PICKLE_LIST, &list)) return false;
    bool good = true;
    for (size_t i = height; i < p->count && good; i++) {
        pickle_value item = p->stack[i];
        if (!leave_token(p, item)) return false;
        p->stack[i].type = PICKLE_NONE; /* owned by the builder now, even if append fails */
        good = p->builder->append(p->builder->user, &list->node, item);
    }
    drop_above(p, height);
    return good;
}

static bool set_above(pickle *p, size_t height)
{
    pickle_value *dict;
    if (!container_under(p, height, PICKLE_DICT, &dict)) return false;
    if ((p->count - height) % 2) return FAIL_OPCODE(p, "has a key without a value");
    bool good = true;
    for (size_t i = height; i < p->count && good; i += 2) {
        pickle_value key = p->stack[i], value = p->stack[i + 1];
        if (!leave_token(p, value)) return false;
        p->stack[i].type = p->stack[i + 1].type = PICKLE_NONE;
        good = p->builder->set(p->builder->user, &dict->node, key, value);
    }
    drop_above(p, height);
    return good && leave_token(p, *dict); /* the list that it goes into may hold it twice */
}

static bool op_append(pickle *p)
{
    return need_values(p, 2) && append_above(p, p->count - 1);
}

static bool op_setitem(pickle *p)
{
    return need_values(p, 3) && set_above(p, p->count - 2);
}

/* APPENDS and SETITEMS */
static bool op_batch(pickle *p)
{
    size_t height;
    if (!pop_mark(p, &height)) return false;
    return p->op == 'e' ? append_above(p, height) : set_above(p, height);
}

/* LIST and DICT: a new container from the values above the mark. */
static bool op_build_container(pickle *p)
{
    size_t height;
    if (!pop_mark(p, &height) || !push(p, (pickle_value){ .type = PICKLE_NONE })) return false;
    memmove(&p->stack[height + 1], &p->stack[height], (p->count - 1 - height) * sizeof *p->stack);
    p->stack[height] = (pickle_value){ .type = p->op == 'l' ? PICKLE_LIST : PICKLE_DICT };
    return p->op == 'l' ? append_above(p, height + 1) : set_above(p, height + 1);
}

static bool op_additems(pickle *p)
{
    size_t height;
    pickle_value *set;
    if (!pop_mark(p, &height) || !container_under(p, height, PICKLE_SET, &set)) return false;
    drop_above(p, height);
    return true;
}

static bool op_frozenset(pickle *p)
{
    return op_pop_mark(p) && push_atom(p, ATOM_SET);
}

static bool push_tuple(pickle *p, size_t height)
{
    uint64_t first, second;
    if (p->count - height == 2 && pickle_u64(p->stack[height], &first) && pickle_u64(p->stack[height + 1], &second)) {
        p->count = height;
        pickle_value pair;
        return atoms_pair(&p->atoms, first, second, &pair) && push(p, pair);
    }
    drop_above(p, height);
    return push_atom(p, ATOM_TUPLE);
}

static bool op_tuple(pickle *p)
{
    size_t height;
    return pop_mark(p, &height) && push_tuple(p, height);
}

/* TUPLE1, TUPLE2, TUPLE3 */
static bool op_small_tuple(pickle *p)
{
    size_t items = (size_t)p->op - 0x84;
    return need_values(p, items) && push_tuple(p, p->count - items);
}

/* ---- memo -------------------------------------------------------------------------------------------------------- */

static bool memo_put(pickle *p, uint64_t index)
{
    if (!need_values(p, 1)) return false;
    /* Picklers number from 0 or 1, and each put takes two bytes or follows an opcode, so no valid index exceeds the
     * offset. This keeps a small file from demanding a large memo. */
    if (index >= p->limits->memo || index > p->op_offset)
        return FAIL(p, "memo index %" PRIu64 " is out of range", index);

    pickle_value *top = &p->stack[p->count - 1];
    uint32_t atom = is_container(*top) ? container_atom(top->type) : top->tag;
    if (atom == ATOM_UNSET && !atoms_scalar(&p->atoms, *top, &atom)) return false;
    if (!grow_try((void **)&p->memo, &p->memo_capacity, index + 1, sizeof *p->memo)) return source_fail_memory(p->s);
    while (p->memo_count <= index) p->memo[p->memo_count++] = ATOM_UNSET;
    if (p->memo[index] == ATOM_UNSET) p->memo_used++;
    p->memo[index] = atom;
    if (is_container(*top)) top->tag = (uint32_t)index + 1;
    return leave_token(p, *top);
}

static bool memo_get(pickle *p, uint64_t index)
{
    if (index >= p->memo_count || p->memo[index] == ATOM_UNSET)
        return FAIL(p, "memo index %" PRIu64 " was never stored", index);
    return push_atom(p, p->memo[index]);
}

/* PUT and GET, whose index is in decimal. */
static bool op_text_memo(pickle *p)
{
    pickle_value value;
    bool wide;
    uint64_t index;
    if (!pickle_text_number(p->argument.bytes, p->argument.length, &value, &wide) || wide || !pickle_u64(value, &index))
        return FAIL_OPCODE(p, "has a bad memo index");
    return p->op == 'p' ? memo_put(p, index) : memo_get(p, index);
}

static bool op_binput(pickle *p)
{
    return memo_put(p, p->argument.number);
}

static bool op_binget(pickle *p)
{
    return memo_get(p, p->argument.number);
}

static bool op_memoize(pickle *p)
{
    return memo_put(p, p->memo_used);
}

/* ---- frame of the file ------------------------------------------------------------------------------------------- */

static bool op_proto(pickle *p)
{
    if (p->argument.number <= 5) return true;
    return FAIL(p, "pickle protocol %" PRIu64 " is newer than 5, the last one known: save it with protocol=5",
                p->argument.number);
}

static bool op_frame(pickle *p)
{
    (void)p; /* only a hint how much to read ahead */
    return true;
}

static bool op_stop(pickle *p)
{
    if (!need_values(p, 1)) return false;
    p->stopped = true;
    return true;
}

static const opcode opcodes[256] = {
    ['('] = { "MARK", op_mark, ARG_NONE },
    ['.'] = { "STOP", op_stop, ARG_NONE },
    ['0'] = { "POP", op_pop, ARG_NONE },
    ['1'] = { "POP_MARK", op_pop_mark, ARG_NONE },
    ['2'] = { "DUP", op_dup, ARG_NONE },
    ['F'] = { "FLOAT", op_float, ARG_LINE },
    ['I'] = { "INT", op_decimal, ARG_LINE },
    ['J'] = { "BININT", op_number, ARG_I4 },
    ['K'] = { "BININT1", op_number, ARG_U1 },
    ['L'] = { "LONG", op_decimal, ARG_LINE },
    ['M'] = { "BININT2", op_number, ARG_U2 },
    ['N'] = { "NONE", op_none, ARG_NONE },
    ['P'] = { "PERSID", NULL, ARG_NONE },
    ['Q'] = { "BINPERSID", NULL, ARG_NONE },
    ['R'] = { "REDUCE", NULL, ARG_NONE },
    ['S'] = { "STRING", op_text, ARG_LINE },
    ['T'] = { "BINSTRING", op_string, ARG_SIZED4 },
    ['U'] = { "SHORT_BINSTRING", op_string, ARG_SIZED1 },
    ['V'] = { "UNICODE", op_text, ARG_LINE },
    ['X'] = { "BINUNICODE", op_string, ARG_SIZED4 },
    ['a'] = { "APPEND", op_append, ARG_NONE },
    ['b'] = { "BUILD", NULL, ARG_NONE },
    ['c'] = { "GLOBAL", NULL, ARG_NONE },
    ['d'] = { "DICT", op_build_container, ARG_NONE },
    ['}'] = { "EMPTY_DICT", op_empty, ARG_NONE },
    ['e'] = { "APPENDS", op_batch, ARG_NONE },
    ['g'] = { "GET", op_text_memo, ARG_LINE },
    ['h'] = { "BINGET", op_binget, ARG_U1 },
    ['i'] = { "INST", NULL, ARG_NONE },
    ['j'] = { "LONG_BINGET", op_binget, ARG_U4 },
    ['l'] = { "LIST", op_build_container, ARG_NONE },
    [']'] = { "EMPTY_LIST", op_empty, ARG_NONE },
    ['o'] = { "OBJ", NULL, ARG_NONE },
    ['p'] = { "PUT", op_text_memo, ARG_LINE },
    ['q'] = { "BINPUT", op_binput, ARG_U1 },
    ['r'] = { "LONG_BINPUT", op_binput, ARG_U4 },
    ['s'] = { "SETITEM", op_setitem, ARG_NONE },
    ['t'] = { "TUPLE", op_tuple, ARG_NONE },
    [')'] = { "EMPTY_TUPLE", op_opaque, ARG_NONE },
    ['u'] = { "SETITEMS", op_batch, ARG_NONE },
    ['G'] = { "BINFLOAT", op_binfloat, ARG_U8 },
    ['B'] = { "BINBYTES", op_opaque, ARG_SIZED4 },
    ['C'] = { "SHORT_BINBYTES", op_opaque, ARG_SIZED1 },
    [0x80] = { "PROTO", op_proto, ARG_U1 },
    [0x81] = { "NEWOBJ", NULL, ARG_NONE },
    [0x82] = { "EXT1", NULL, ARG_NONE },
    [0x83] = { "EXT2", NULL, ARG_NONE },
    [0x84] = { "EXT4", NULL, ARG_NONE },
    [0x85] = { "TUPLE1", op_small_tuple, ARG_NONE },
    [0x86] = { "TUPLE2", op_small_tuple, ARG_NONE },
    [0x87] = { "TUPLE3", op_small_tuple, ARG_NONE },
    [0x88] = { "NEWTRUE", op_bool, ARG_NONE },
    [0x89] = { "NEWFALSE", op_bool, ARG_NONE },
    [0x8a] = { "LONG1", op_long, ARG_SIZED1 },
    [0x8b] = { "LONG4", op_long, ARG_SIZED4 },
    [0x8c] = { "SHORT_BINUNICODE", op_string, ARG_SIZED1 },
    [0x8d] = { "BINUNICODE8", op_string, ARG_SIZED8 },
    [0x8e] = { "BINBYTES8", op_opaque, ARG_SIZED8 },
    [0x8f] = { "EMPTY_SET", op_empty, ARG_NONE },
    [0x90] = { "ADDITEMS", op_additems, ARG_NONE },
    [0x91] = { "FROZENSET", op_frozenset, ARG_NONE },
    [0x92] = { "NEWOBJ_EX", NULL, ARG_NONE },
    [0x93] = { "STACK_GLOBAL", NULL, ARG_NONE },
    [0x94] = { "MEMOIZE", op_memoize, ARG_NONE },
    [0x95] = { "FRAME", op_frame, ARG_U8 },
    [0x96] = { "BYTEARRAY8", op_opaque, ARG_SIZED8 },
    [0x97] = { "NEXT_BUFFER", NULL, ARG_NONE },
    [0x98] = { "READONLY_BUFFER", NULL, ARG_NONE },
};

/* ---- the machine ------------------------------------------------------------------------------------------------- */

static bool read_sized(pickle *p, argument *a)
{
    if (a->number > p->limits->string_bytes)
        return FAIL_OPCODE(p, "is of %" PRIu64 " bytes, more than the limit of %" PRIu64, a->number,
                           p->limits->string_bytes);
    a->length = (size_t)a->number;
    a->bytes = NULL;
    if (a->length > ATOM_STRING_MAX) return source_skip(p->s, a->number) || fail_truncated(p);
    if (source_need(p->s, a->length) < a->length) return fail_truncated(p);
    a->bytes = p->s->at;
    p->s->at += a->length;
    return true;
}

static bool read_argument(pickle *p, argument_kind kind)
{
    argument *a = &p->argument;
    if (kind == ARG_LINE) {
        bool whole = false;
        a->bytes = source_line(p->s, &a->length, &whole);
        return whole || fail_truncated(p);
    }
    size_t bytes = argument_bytes[kind];
    if (source_need(p->s, bytes) < bytes) return fail_truncated(p);
    a->number = little_endian(p->s->at, bytes);
    p->s->at += bytes;
    if (kind == ARG_I4) a->number = (uint64_t)(int32_t)a->number;
    return kind < ARG_SIZED1 || read_sized(p, a);
}

static bool run(pickle *p)
{
    while (!p->stopped) {
        p->op_offset = source_offset(p->s);
        if (source_need(p->s, 1) == 0)
            return FAIL(p, "the file ends before the pickle's STOP opcode: it is not complete");
        p->op = *p->s->at++;
        const opcode *o = &opcodes[p->op];
        if (!o->name) return FAIL(p, "opcode 0x%02x is unknown: the file is damaged or not a pickle", p->op);
        if (!o->run) return FAIL_OPCODE(p, "is not data: refused, nothing was run; pickle it with plain types only");
        if (o->argument != ARG_NONE && !read_argument(p, o->argument)) return false;
        if (!o->run(p)) return false;
    }
    return true;
}

bool pickle_read(source *s, const trace_limits *limits, const pickle_builder *builder)
{
    pickle p = { .s = s, .limits = limits, .builder = builder };
    bool good = atoms_init(&p.atoms, s, limits);
    for (uint32_t i = 0; i < builder->word_count && good; i++) {
        pickle_value word;
        good = atoms_string(&p.atoms, builder->words[i], strlen(builder->words[i]), &word);
    }
    good = good && run(&p) && builder->result(builder->user, p.stack[p.count - 1]);

    drop_above(&p, 0);
    atoms_release(&p.atoms);
    free(p.memo);
    free(p.marks);
    free(p.stack);
    return good;
}
