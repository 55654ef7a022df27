/*
 * The protocol of src/pool/front/side.h: one block of a shared front; two threads, each with a side, that both free it, which
 * is an error; and a visitor, who closes the main front and then the sides, looks at everything, and opens them again.
 * The block is handed out again once both have tried.
 * Checked: one of the two frees succeeds, the block is in one place at a time, nothing is parked anywhere while all is
 * closed, and nobody waits for ever.
 * With -DNO_CLAIM a thread marks the block in a second step after it has looked, with -DMAIN_UNCLAIMED whoever has the
 * main front's lock does, and with -DTRUST_CLOSED a thread looks whether its side is closed before it has the lock:
 * then the model fails, as it must.
 */
mtype = { LIVE, PARKED, FREE };
mtype mark = FREE;

bool front, side[2];     /* the locks; the main front's includes the cache's */
bool closed, shut[2];    /* the main front; the sides */
byte free = 1, parked, aside[2]; /* how often the block is in each place */
bool tried[2];           /* to free it, since it was handed out */
byte freed = 1;          /* how often that succeeded */
bool asking;             /* a thread asks for it */

inline lock(l) { atomic { !l -> l = true } }

inline look_and_mark(ok) {
    ok = (mark == LIVE);
    if
    :: ok -> mark = PARKED
    :: else
    fi
}

inline claim(ok) { atomic { look_and_mark(ok) } }

/* The place it came from is locked. */
inline hand_out() {
    assert(aside[0] + aside[1] + parked + free == 0);
    atomic { mark = LIVE; freed = 0; tried[0] = false; tried[1] = false }
}

inline take(me) {
    lock(side[me]);
    if
    :: aside[me] > 0 -> aside[me]--; got = true; hand_out()
    :: else
    fi;
    side[me] = false;
    if
    :: got
    :: else ->
        lock(front);
        if
        :: parked > 0 -> parked--; hand_out()
        :: parked == 0 && free > 0 -> free--; hand_out()
        :: else
        fi;
        front = false
    fi;
    got = false
}

inline give(me) {
#ifdef TRUST_CLOSED
    open = !shut[me];
#endif
    lock(side[me]);
#ifndef TRUST_CLOSED
    open = !shut[me];
#endif
    if
    :: open ->
#ifdef NO_CLAIM
        look_and_mark(ok);
#else
        claim(ok);
#endif
        if
        :: ok -> aside[me]++
        :: else
        fi
    :: else
    fi;
    side[me] = false;
    if
    :: ok
    :: else ->
        lock(front);
#ifdef MAIN_UNCLAIMED
        look_and_mark(ok);
#else
        claim(ok);
#endif
        if
        :: ok && closed -> mark = FREE; free++
        :: ok && !closed -> parked++
        :: else
        fi;
        front = false
    fi;
    atomic {
        freed = freed + ok;
        tried[me] = true;
        assert(!tried[0] || !tried[1] || freed == 1)
    };
    ok = false
}

proctype thread(byte me) {
    bool ok, got, open;
end:
    do
    :: atomic { tried[0] && tried[1] && !asking -> asking = true };
        take(me);
        asking = false
    :: !tried[me] -> give(me)
    od
}

inline shut_side(i) {
    lock(side[i]);
    shut[i] = true;
    if
    :: aside[i] > 0 -> aside[i]--; mark = FREE; free++
    :: else
    fi;
    side[i] = false
}

inline open_side(i) {
    lock(side[i]);
    shut[i] = false;
    side[i] = false
}

proctype visitor() {
end:
    do
    :: true ->
        lock(front);
        closed = true;
        if
        :: parked > 0 -> parked--; mark = FREE; free++
        :: else
        fi;
        front = false;
        shut_side(0);
        shut_side(1);
        assert(parked + aside[0] + aside[1] == 0);
        lock(front);
        closed = false;
        front = false;
        open_side(0);
        open_side(1)
    od
}

init {
    atomic {
        tried[0] = true;
        tried[1] = true;
        run thread(0);
        run thread(1);
        run visitor()
    }
}
