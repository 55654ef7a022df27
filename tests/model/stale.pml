/*
 * What wr_front_good (src/pool/front/front.h) reads of a record that may be another block's by now. A thread frees the block at P,
 * and has found the record by a table of starts that was replaced meanwhile: an unused record, which still has its last block's
 * base, P. Another thread makes it the block at Q, of the same front or of another one, hands that out, and frees it. Both frees
 * are correct.
 * Checked: the first thread does not take the block at Q for its own, neither to park it nor for as long as claiming it
 * takes (src/pool/front/post.h), since the second thread's free would find it freed already.
 * With -DBASE_FIRST the mark is read after the base, as if by an acquire; with -DUNORDERED it is read first, but not
 * acquired: then the model fails, as it must.
 */
mtype = { UNUSED, PARKABLE };
mtype mark = UNUSED, seen_mark;
bool at_p = true, seen_at_p;        /* the record's base */
bool same_front, seen_front;        /* the record's segment is one of the first thread's front */

active proctype user()
{
    if                              /* plain stores */
    :: at_p = false; same_front = true
    :: same_front = true; at_p = false
    :: at_p = false
    fi;
    mark = PARKABLE                 /* released */
}

inline read_mark()  { seen_mark = mark }
inline read_base()  { seen_at_p = at_p }
inline read_front() { seen_front = same_front }

active proctype freeing()
{
#if defined(BASE_FIRST)
    read_base();
    read_mark();
    read_front();
#elif defined(UNORDERED)
    if
    :: read_base(); read_mark(); read_front()
    :: read_front(); read_mark(); read_base()
    :: read_front(); read_base(); read_mark()
    fi;
#else
    read_mark();                    /* acquired */
    if
    :: read_base(); read_front()
    :: read_front(); read_base()
    fi;
#endif
    assert(!(seen_mark == PARKABLE && seen_at_p && seen_front))
}
