/*
 * snapshot_dict: the words of PyTorch's snapshots, and the dictionaries in them, of which only known keys are kept.
 * Owner: snapshot.c, for one reading. No locks. Functions that read a `dict *` take NULL as an empty one.
 */
#ifndef WEIR_TOOLS_INPUT_SNAPSHOT_DICT_H
#define WEIR_TOOLS_INPUT_SNAPSHOT_DICT_H

#include "pickle.h"

/* Keys come first: dictionaries keep only these. */
#define WORDS(X)                                                                                                       \
    X(ACTION, "action")                                                                                                \
    X(ADDR, "addr")                                                                                                    \
    X(DEVICE_FREE, "device_free")                                                                                      \
    X(SIZE, "size")                                                                                                    \
    X(STREAM, "stream")                                                                                                \
    X(TIME_US, "time_us")                                                                                              \
    X(POOL_ID, "pool_id")                                                                                              \
    X(DEVICE, "device")                                                                                                \
    X(ADDRESS, "address")                                                                                              \
    X(SEGMENT_POOL_ID, "segment_pool_id")                                                                              \
    X(BLOCKS, "blocks")                                                                                                \
    X(STATE, "state")                                                                                                  \
    X(REQUESTED_SIZE, "requested_size")                                                                                \
    X(HISTORY, "history")                                                                                              \
    X(REAL_SIZE, "real_size")                                                                                          \
    X(TOTAL_SIZE, "total_size")                                                                                        \
    X(IS_EXPANDABLE, "is_expandable")                                                                                  \
    X(FRAMES, "frames")                                                                                                \
    X(FILENAME, "filename")                                                                                            \
    X(NAME, "name")                                                                                                    \
    X(LINE, "line")                                                                                                    \
    X(SEGMENTS, "segments")                                                                                            \
    X(DEVICE_TRACES, "device_traces")                                                                                  \
    X(ALLOCATOR_SETTINGS, "allocator_settings")                                                                        \
    X(CUDA_ALLOC_CONF, "PYTORCH_CUDA_ALLOC_CONF")                                                                      \
    X(ALLOC_CONF, "PYTORCH_ALLOC_CONF")                                                                                \
    X(MAX_SPLIT_SIZE, "max_split_size")                                                                                \
    X(GC_THRESHOLD, "garbage_collection_threshold")                                                                    \
    X(EXPANDABLE_SEGMENTS, "expandable_segments")                                                                      \
    X(ROUNDUP, "roundup_power2_divisions")                                                                             \
    X(MIB_1, "1")                                                                                                      \
    X(MIB_2, "2")                                                                                                      \
    X(MIB_4, "4")                                                                                                      \
    X(MIB_8, "8")                                                                                                      \
    X(MIB_16, "16")                                                                                                    \
    X(MIB_32, "32")                                                                                                    \
    X(MIB_64, "64")                                                                                                    \
    X(MIB_128, "128")                                                                                                  \
    X(MIB_256, "256")                                                                                                  \
    X(MIB_512, "512")                                                                                                  \
    X(MIB_1024, "1024")                                                                                                \
    X(MIB_2048, "2048")                                                                                                \
    X(MIB_4096, "4096")                                                                                                \
    X(MIB_8192, "8192")                                                                                                \
    X(MIB_16384, "16384")                                                                                              \
    X(MIB_32768, "32768")                                                                                              \
    /* actions, in the order of weir_event_kind */                                                                     \
    X(ALLOC, "alloc")                                                                                                  \
    X(FREE_REQUESTED, "free_requested")                                                                                \
    X(FREE_COMPLETED, "free_completed")                                                                                \
    X(SEGMENT_ALLOC, "segment_alloc")                                                                                  \
    X(SEGMENT_FREE, "segment_free")                                                                                    \
    X(SEGMENT_MAP, "segment_map")                                                                                      \
    X(SEGMENT_UNMAP, "segment_unmap")                                                                                  \
    X(OOM, "oom")                                                                                                      \
    X(SNAPSHOT, "snapshot")                                                                                            \
    X(USER_DEFINED, "user_defined") /* an annotation of the program's */                                               \
    /* states of a block */                                                                                            \
    X(INACTIVE, "inactive")                                                                                            \
    X(ACTIVE_ALLOCATED, "active_allocated")                                                                            \
    X(ACTIVE_PENDING_FREE, "active_pending_free")                                                                      \
    X(ACTIVE_AWAITING_FREE, "active_awaiting_free")

typedef enum word {
    WORD_NONE,
#define WORD_ENUM(name, text) WORD_##name,
    WORDS(WORD_ENUM)
#undef WORD_ENUM
} word;

#define LAST_KEY WORD_MIB_32768
#define WORD_COUNT ((uint32_t)WORD_ACTIVE_AWAITING_FREE)

/* In order, without WORD_NONE. */
extern const char *const snapshot_words[];

typedef struct dict {
    uint64_t has; /* bit per word */
    uint8_t count, capacity;
    uint8_t height;       /* levels of dicts below it; bounded, so that dropping one cannot recurse far */
    pickle_value items[]; /* each item's tag is its key's word */
} dict;

const char *word_text(word w);

const pickle_value *dict_get(const dict *d, word key);
bool dict_has(const dict *d, word key);
bool dict_gives(const dict *d, word key); /* it is not None either */

/* The place of the key's value, made with PICKLE_NONE if needed; *d may move. NULL: no memory. */
pickle_value *dict_slot(dict **d, word key);

/* Numbers: absent and None count as 0; false for anything but a number from 0 up. */
bool dict_number(const dict *d, word key, uint64_t *out);
/* Addresses and streams, which some writers give as signed numbers. */
bool dict_address(const dict *d, word key, uint64_t *out);
bool dict_pool(const dict *d, word key, uint64_t out[2]);
/* True when the key is present and True. */
bool dict_true(const dict *d, word key);
bool dict_time_ns(const dict *d, uint64_t *out);
/* The stack number that the reader put in place of "frames"; 0: none. */
uint32_t dict_stack(const dict *d);

/* The value as a word; WORD_NONE: not a known word. */
word dict_word(const dict *d, word key);

/* For messages. */
const char *dict_text(const dict *d, word key);

#endif
