/*
 * Claims that are let go of (wr_front_claim, src/pool/front/front.h). Two threads free a block at P in error: it was free, and
 * they found its record good while it was still P's. By now it is the record of the block at Q, which its owner frees, once: with
 * a plain store, by a claim of its own, or, where it finds the block neither parkable nor freed, with the cache's lock.
 * Checked: the owner is not told that the block was freed before, and what it has freed stays freed.
 * With -DNO_WAIT it takes a claimed block for a freed one, with -DONE_MARK a claim looks as what becomes of it: then the
 * model fails, as it must.
 */
mtype = { PARKABLE, CLAIMED, PARKED, NONE };
mtype mark = PARKABLE;
byte ended;

#ifdef ONE_MARK
#define CLAIM PARKED
#else
#define CLAIM CLAIMED
#endif

inline change(from, to, changed) {
    atomic {
        changed = (mark == from);
        if
        :: changed -> mark = to
        :: else
        fi
    }
}

active [2] proctype stale() {
    bool claimed, undone;
    change(PARKABLE, CLAIM, claimed);
    if
    :: claimed -> change(CLAIM, PARKABLE, undone) /* the block begins at Q */
    :: else
    fi;
    ended++
}

active proctype owner() {
    bool freed;
    if
    :: mark == PARKABLE -> mark = PARKED; freed = true /* a look and a store */
    :: change(PARKABLE, CLAIM, freed);
        if
        :: freed -> mark = PARKED
        :: else
        fi
    :: true
    fi;
    do
    :: freed -> break
    :: else -> /* with the cache's lock */
        change(PARKABLE, NONE, freed);
        if
        :: freed
#ifdef NO_WAIT
        :: !freed -> assert(mark != CLAIMED && mark != PARKED)
#else
        :: !freed -> mark != CLAIMED; assert(mark != PARKED)
#endif
        fi
    od;
    ended == 2;
    assert(mark == PARKED || mark == NONE)
}
