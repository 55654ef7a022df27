#include "pool/front/grade.h"

#include "pool/front/front.h"

/* In WR_FRONT_QUANTUM: from each one, the largest within an eighth whose slot (wr_front_index) is not another's yet. */
static const uint16_t quanta[WR_GRADES] = { 1,   2,   3,    4,    5,    6,    7,    8,    9,    10,  11,  12,  13,
                                            14,  15,  16,   18,   20,   22,   24,   27,   30,   33,  37,  41,  46,
                                            51,  57,  63,   70,   78,   87,   94,   105,  117,  131, 144, 161, 179,
                                            197, 221, 242,  271,  301,  336,  376,  421,  466,  518, 582, 650, 731,
                                            819, 919, 1013, 1135, 1272, 1413, 1589, 1770, 1964, 1999 };

unsigned wr_grade_of(size_t bytes)
{
    unsigned low = 0, high = WR_GRADES;
    while (low < high) {
        const unsigned middle = (low + high) / 2;
        if (quanta[middle] * WR_FRONT_QUANTUM < bytes)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

size_t wr_grade_bytes(unsigned grade)
{
    return grade < WR_GRADES ? quanta[grade] * WR_FRONT_QUANTUM : 0;
}
