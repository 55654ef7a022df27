/*
 * How a stream's route is read without a lock (src/device/routes.c): its pool and its serial are two words. The stream's
 * route goes from pool 1 to pool 2, or ends, while a thread that has entered a pool of its own in between allocates. Of
 * routes to both pools the newest wins.
 * Checked: the thread gets its own pool or pool 2, never pool 1, whose route is older than its own.
 * With the serial stored first (-DSERIAL_FIRST), or read after the pool was read again (-DUNORDERED), which it may be if
 * it is not acquired, the model fails, as it must.
 */
#define OWN 7 /* the serial of the thread's own route */
byte routed = 1, serial = 5;

active proctype router() {
    byte to;
    if :: to = 2 :: to = 0 fi; /* 0: the route ends */
#ifdef SERIAL_FIRST
    serial = 9;
    routed = to
#else
    routed = to;
    serial = 9 /* released */
#endif
}

inline read_serial() { found_serial = serial } /* acquired */
inline read_again() { again = routed }

active proctype user() {
    byte pool, found_serial, again, chosen = OWN;
    pool = routed;
    do
    :: pool == 0 -> break
    :: else ->
#ifdef UNORDERED
        if
        :: read_serial(); read_again()
        :: read_again(); read_serial()
        fi;
#else
        read_serial();
        read_again();
#endif
        if
        :: again != pool -> pool = again
        :: else ->
            if :: found_serial > OWN -> chosen = pool :: else fi;
            break
        fi
    od;
    assert(chosen != 1)
}
