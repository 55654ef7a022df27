/*
 * The protocol of src/pool/front/detach.h: two fronts, each with the thread that has its lock, and a visitor who has neither. Blocks of a
 * front are changed under the cache's lock, by anyone, or under the front's cutting lock, by its thread, while it is detached.
 * Checked: never two at once, no change is lost to the ledgers, the lock that detaching takes is free, and nobody waits for ever.
 * With -DNO_SECOND_LOOK a thread trusts what it saw before it had the lock, and with -DONE_LOCK the cache's lock is taken without
 * those of the detached fronts: then the model fails, as it must.
 */
#define FRONTS 2
#define ROUND 4 /* counts are modulo this */

bool cache, cutting[FRONTS], detached[FRONTS];
byte inside[FRONTS];          /* threads that change blocks of a front */
byte ledger[FRONTS], told;    /* changes counted in the front's ledger, and those in the cache */
byte happened;                /* changes made */

inline lock(l) { atomic { !l -> l = true } }

inline change(f, written) {
    inside[f]++;
    assert(inside[f] == 1);
    written = (written + 1) % ROUND;
    happened = (happened + 1) % ROUND;
    inside[f]--
}

inline lock_all() {
    lock(cache);
#ifndef ONE_LOCK
    i = 0;
    do
    :: i < FRONTS -> if :: detached[i] -> lock(cutting[i]) :: else fi; i++
    :: else -> break
    od
#endif
}

inline unlock_all() {
    i = 0;
    do
    :: i < FRONTS -> if :: detached[i] -> cutting[i] = false :: else fi; i++
    :: else -> break
    od;
    cache = false
}

inline attach(f) {
    if
    :: detached[f] ->
        told = (told + ledger[f]) % ROUND;
        ledger[f] = 0;
        detached[f] = false;
        cutting[f] = false
    :: else
    fi
}

inline look() { assert((told + ledger[0] + ledger[1]) % ROUND == happened) }

/* The owner of the cache's lock may change blocks of any front. While a front is detached, such changes count in its ledger. */
inline use_cache(f) {
    if :: detached[f] -> change(f, ledger[f]) :: else -> change(f, told) fi;
    look();
    if :: attach(f) :: skip fi
}

proctype owner(byte me) {
    byte i;
end:
    do
    :: detached[me] ->
        lock(cutting[me]);
#ifndef NO_SECOND_LOOK
        if
        :: detached[me] -> change(me, ledger[me])
        :: else
        fi;
#else
        change(me, ledger[me]);
#endif
        cutting[me] = false
    :: true ->
        lock_all();
        use_cache(1 - me);
        if
        :: !detached[me] ->
            assert(!cutting[me]);
            cutting[me] = true;
            detached[me] = true
        :: true
        fi;
        unlock_all()
    od
}

proctype visitor() {
    byte i;
end:
    do
    :: true -> lock_all(); use_cache(0); use_cache(1); unlock_all()
    od
}

init { atomic { run owner(0); run owner(1); run visitor() } }
