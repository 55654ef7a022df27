/*
 * The protocol of src/pool/front/post.h: one block; the thread that uses its stream; another thread, which frees the block by posting it;
 * and a visitor, who closes the front, looks at everything, and opens it again. The block is handed out, given to the other thread
 * or not, and freed, for ever.
 * Checked: the block is in one place at a time, nothing is posted or parked while the front is closed, and nobody waits for ever.
 * With -DNO_LOCK a thread posts without the posts' lock, with -DTRUST_OPEN it looks whether it may before it has that lock, and with
 * -DLEAVE_POSTS closing leaves what was posted: then the model fails, as it must.
 */
mtype = { LIVE, POSTED, PARKED, FREE };
mtype mark = FREE;

bool front, posts;            /* the locks */
bool closed, open = true;     /* closed: under the front's lock; open: under both */
byte posted, parked, free = 1; /* how often the block is in each place */
byte given;                   /* to the other thread, by a program that waits for it */

inline lock(l) { atomic { !l -> l = true } }

inline take_posts(n) {
    lock(posts);
    n = posted;
    posted = 0;
    posts = false
}

inline put(n) {
    if
    :: n > 0 ->
        assert(n == 1 && mark == POSTED);
        if
        :: closed -> mark = FREE; free++
        :: else -> mark = PARKED; parked++
        fi
    :: else
    fi
}

proctype owner() {
    byte n;
end:
    do
    :: true ->
        lock(front);
        take_posts(n);
        put(n);
        assert(parked + free == 1);
        if
        :: parked > 0 -> parked--
        :: else -> free--
        fi;
        mark = LIVE;
        front = false;
        if
        :: true ->
            lock(front);
            if
            :: closed -> mark = FREE; free++
            :: else -> mark = PARKED; parked++
            fi;
            front = false
        :: true -> given = 1; given == 0
        fi
    od
}

proctype other() {
    byte n;
    bool may;
end:
    do
    :: given == 1 ->
#ifdef TRUST_OPEN
        may = open;
#endif
#ifndef NO_LOCK
        lock(posts);
#endif
#ifndef TRUST_OPEN
        may = open;
#endif
        if
        :: may && mark == LIVE -> mark = POSTED; n = posted; posted = n + 1
        :: else
        fi;
#ifndef NO_LOCK
        posts = false;
#endif
        if
        :: may
        :: else ->
            lock(front);
            take_posts(n);
            put(n);
            mark = FREE;
            free++;
            front = false
        fi;
        given = 0
    od
}

proctype visitor() {
    byte n;
end:
    do
    :: true ->
        lock(front);
        closed = true;
        lock(posts);
        open = false;
#ifndef LEAVE_POSTS
        n = posted;
        posted = 0;
#endif
        posts = false;
        put(n);
        n = 0;
        if
        :: parked > 0 -> parked--; mark = FREE; free++
        :: else
        fi;
        front = false;
        assert(mark == LIVE || mark == FREE);
        assert(posted == 0 && parked == 0);
        lock(front);
        closed = false;
        lock(posts);
        open = true;
        posts = false;
        front = false
    od
}

init { atomic { run owner(); run other(); run visitor() } }
