#include "weir/trace.h"

const char *weir_step_name(weir_step step)
{
    static const char *const names[WEIR_STEPS] = {
        [WEIR_STEP_REFUSED] = "refused",
        [WEIR_STEP_FINISHED] = "finished frees",
        [WEIR_STEP_GROW] = "a new segment",
        [WEIR_STEP_REHOME] = "idle segments of other streams",
        [WEIR_STEP_BORROW] = "pools that lend",
        [WEIR_STEP_TRIM_OVERSIZE] = "idle oversize segments given back",
        [WEIR_STEP_WAIT] = "pending frees waited for",
        [WEIR_STEP_TRIM] = "idle segments given back",
        [WEIR_STEP_HANDLES] = "idle handles destroyed",
        [WEIR_STEP_PROGRAM] = "the program's callbacks",
    };
    return (unsigned)step < WEIR_STEPS ? names[step] : "unknown";
}
