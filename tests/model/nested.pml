/*
 * Two locks of src/base/bias.h, one inside the other, as a front's and the cache's: two threads that take the outer one and then the
 * inner one, or only try it, each as owner or by its mutex, and a visitor without bias, who takes the inner one alone or visits the
 * outer one first. Who gets a bias at a release is anybody's guess here. A store to either of a thread's words waits by itself, so that
 * they are seen in any order, until membarrier, or the release of a mutex, drains both: less than real processors promise.
 * Checked: never two in either lock, and nobody waits for ever.
 * Without the fence of others (-DNO_MEMBARRIER), with one word for both locks (-DONE_WORD), or with a try that takes the mutex and
 * does not look who is inside (-DTRY_MUTEX_ONLY), the model fails, as it must.
 */
#define OUTER 0
#define INNER 1
#define VISITOR 3

#ifdef ONE_WORD
#define WORD(t, d) t * 2
#else
#define WORD(t, d) t * 2 + d
#endif

byte owner[2], mutex[2];           /* by lock; 0: nobody */
bool inside[8], held[8], value[8]; /* by word: the value in memory, and a store to it that waits */
byte critical[2];                  /* threads inside, by lock */

inline drain(w) { if :: held[w] -> inside[w] = value[w]; held[w] = false :: else fi }
inline drain_all(t) { drain(t * 2); drain(t * 2 + 1) }
inline store(d, v) { atomic { drain(WORD(me, d)); held[WORD(me, d)] = true; value[WORD(me, d)] = v } }

inline membarrier() { atomic {
#ifndef NO_MEMBARRIER
    drain_all(1); drain_all(2)
#else
    skip
#endif
} }

/* The mutex is held. */
inline take_over(d) {
    was = owner[d];
    if
    :: was != 0 && was != me ->
        owner[d] = 0;
        membarrier();
        !inside[WORD(was, d)]
    :: else
    fi
}

inline enter(d) { critical[d]++; assert(critical[d] == 1) }

inline acquire_mutex(d) {
    atomic { mutex[d] == 0 -> mutex[d] = me }
    take_over(d)
}

inline acquire(d) {
    store(d, true);
    if
    :: owner[d] == me
    :: else -> store(d, false); acquire_mutex(d)
    fi;
    enter(d)
}

inline try(d) {
    store(d, true);
    if
    :: owner[d] == me -> got = true
    :: else ->
        store(d, false);
        atomic { if :: mutex[d] == 0 -> mutex[d] = me; got = true :: else fi }
#ifndef TRY_MUTEX_ONLY
        if :: got -> take_over(d) :: else fi
#endif
    fi;
    if :: got -> enter(d) :: else fi
}

inline release_mutex(d) { atomic { drain_all(me); mutex[d] = 0 } }

/* The thread's own word says how it took the lock. */
inline release(d) {
    critical[d]--;
    if
    /* the value that the thread itself reads */
    :: (held[WORD(me, d)] && value[WORD(me, d)]) || (!held[WORD(me, d)] && inside[WORD(me, d)]) -> store(d, false)
    :: else ->
        if :: owner[d] = me :: skip fi;
        release_mutex(d)
    fi
}

/* Takes the inner lock in any of the possible ways. */
inline use_inner() {
    if
    :: true -> try(INNER)
    :: true -> acquire(INNER); got = true
    :: atomic { mutex[INNER] == 0 -> mutex[INNER] = me } /* waits for its turn, and changes nothing */
       release_mutex(INNER)
    fi;
    if :: got -> release(INNER); got = false :: else fi
}

proctype user(byte me) {
    byte was;
    bool got, both;
end:
    do
    :: true ->
        if :: both = true; acquire(OUTER) :: skip fi;
        use_inner();
        if :: both -> release(OUTER); both = false :: else fi;
        was = 0
    od
}

proctype visitor() {
    byte was, outer_was, me = VISITOR;
end:
    do
    :: true ->
        acquire_mutex(OUTER);
        outer_was = was;
        enter(OUTER);
        acquire_mutex(INNER);
        enter(INNER);
        critical[INNER]--;
        mutex[INNER] = 0;
        critical[OUTER]--;
        owner[OUTER] = outer_was;
        mutex[OUTER] = 0;
        outer_was = 0;
        was = 0
    :: true ->
        acquire_mutex(INNER);
        enter(INNER);
        critical[INNER]--;
        mutex[INNER] = 0;
        was = 0
    od
}

/* Buffers drain at any time. */
proctype drains(byte t) {
end:
    do
    :: atomic { held[WORD(t, OUTER)] -> drain(WORD(t, OUTER)) }
    :: atomic { held[WORD(t, INNER)] -> drain(WORD(t, INNER)) }
    od
}

init { atomic { run user(1); run user(2); run visitor(); run drains(1); run drains(2) } }
