/*
 * The protocol of src/base/bias.h: two threads that take the lock again and again, so that it is biased to either, and a
 * visitor. A thread's store to its `inside` waits in its store buffer, as on real processors, until the buffer drains, which
 * may be after its next load; membarrier drains all. Checked: never two in the critical section, and nobody waits for ever.
 * Without the drain in membarrier (-DNO_MEMBARRIER) the model fails, as it must.
 */
#define THREADS 3
#define VISITOR 3
#define STREAK 1

byte owner; /* 0: nobody */
bool inside[THREADS + 1]; /* by thread: the value in memory */
bool held[THREADS + 1], value[THREADS + 1]; /* by thread: a store to `inside` that waits in its buffer */
byte mutex; /* its owner; 0: nobody */
byte last, streak;
byte critical; /* threads in the critical section */

inline drain_one(t) { if :: held[t] -> inside[t] = value[t]; held[t] = false :: else fi }

/* Stores leave a buffer in order, so an older one goes first. */
inline store_inside(t, v) { atomic { drain_one(t); held[t] = true; value[t] = v } }

inline membarrier() { atomic {
#ifndef NO_MEMBARRIER
    drain_one(1); drain_one(2); drain_one(3)
#else
    skip
#endif
} }

inline withdraw(was) {
    was = owner;
    if
    :: was != 0 ->
        owner = 0;
        membarrier();
        !inside[was]
    :: else
    fi
}

inline work() { critical++; assert(critical == 1); critical-- }

proctype user(byte me) {
    byte was;
    bool mine;
end:
    do
    :: true ->
        mine = false;
        store_inside(me, true);
        if
        :: owner == me -> mine = true
        :: else -> store_inside(me, false)
        fi;
        if
        :: mine ->
            work();
            store_inside(me, false)
        :: else ->
            atomic { mutex == 0 -> mutex = me; drain_one(me) }
            withdraw(was);
            if
            :: last == me -> if :: streak < STREAK -> streak++ :: else fi
            :: else -> streak = 0
            fi;
            last = me;
            work();
            if
            :: streak >= STREAK -> owner = last; streak = 0
            :: else
            fi;
            atomic { drain_one(me); mutex = 0 }
        fi
    od
}

proctype visitor() {
    byte was;
end:
    do
    :: true ->
        atomic { mutex == 0 -> mutex = VISITOR }
        withdraw(was);
        if :: was != 0 -> last = was :: else fi;
        work();
        if
        :: was != 0 -> owner = last; streak = 0
        :: else -> if :: streak >= STREAK -> owner = last; streak = 0 :: else fi
        fi;
        mutex = 0
    od
}

/* Buffers drain at any time. */
proctype drain() {
end:
    do
    :: atomic { held[1] -> drain_one(1) }
    :: atomic { held[2] -> drain_one(2) }
    od
}

init { atomic { run user(1); run user(2); run visitor(); run drain() } }
