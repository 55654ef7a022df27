/*
 * What a thread remembers of a stream (src/thread/thread.h): the front, and the count of changed ways from before it looked.
 * Routes open and close meanwhile, twice. Checked: an allocation that begins after a route was opened and before it is closed
 * never goes to the front. With the count raised before the route is counted (-DCOUNT_FIRST), or read after it was
 * looked for (-DREAD_LATE), the model fails, as it must.
 */
byte routes; /* counted in the device */
byte ways = 1;
byte open; /* routes whose opening call has returned and whose closing call has not begun */

inline count_route() { routes++ }
inline change_ways() { ways++ }

active proctype router() {
    byte i;
    for (i : 1 .. 2) {
#ifdef COUNT_FIRST
        change_ways();
        count_route();
#else
        count_route();
        change_ways();
#endif
        open++;
        open--;
        routes--
    }
}

active proctype user() {
    byte remembered, seen;
    bool routed;
end:
    do
    :: true ->
        atomic { routed = open != 0; seen = 0 }
        if
        :: remembered == ways -> assert(!routed || open == 0)
        :: else ->
#ifdef READ_LATE
            if :: routes == 0 -> seen = ways; remembered = seen :: else fi
#else
            seen = ways;
            if :: routes == 0 -> remembered = seen :: else fi
#endif
        fi
    od
}
