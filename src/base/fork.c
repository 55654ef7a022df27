#include "base/fork.h"

atomic_bool wr_forked;

weir_status wr_fork_refuse(void)
{
    return wr_fail(
        WEIR_ERR_FORKED,
        "this process was forked after the driver was started, and drivers do not survive a fork; start workers with "
        "exec, or fork them before the first use of weir");
}
