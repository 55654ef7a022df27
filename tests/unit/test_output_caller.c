#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "output/caller.h"

#include <stdlib.h>

#define COUNT(array) (sizeof(array) / sizeof *(array))

/* The caller in a stack of these frames, innermost first. */
static const char *caller_of(const char *const *texts, size_t count)
{
    char *frames[16];
    uint32_t items[16];
    size_t first[] = { 0, 0, count };
    assert_true(count <= COUNT(frames));
    for (size_t i = 0; i < count; i++) {
        frames[i] = (char *)texts[i];
        items[i] = (uint32_t)i;
    }
    trace_stacks s = { .frames = frames, .frame_count = count, .items = items, .first = first, .count = 2 };
    uint8_t *ranks = caller_ranks(&s);
    const char *caller = caller_first(&s, ranks, 1);
    free(ranks);
    return caller;
}
#define CALLER(...) caller_of((const char *const[]){ __VA_ARGS__ }, COUNT(((const char *const[]){ __VA_ARGS__ })))

static void python_is_found_behind_compiled_code(void **state)
{
    (void)state;
    assert_string_equal(CALLER("torch::unwind::unwind()", "at::detail::empty_cuda(...)",
                               "/aten/src/ATen/native/Linear.cpp:12:at::native::linear(...)",
                               "nn/linear.py:125:forward", "model.py:9:step"),
                        "nn/linear.py:125:forward");
    assert_string_equal(CALLER("at::native::empty_cuda(...)", "<eval_with_key>.3:7:forward"),
                        "<eval_with_key>.3:7:forward");
    assert_string_equal(CALLER("solver.cpp:40:solve(int)", "<string>:1:<module>"), "<string>:1:<module>");
}

static void a_line_is_preferred_to_a_name(void **state)
{
    (void)state;
    assert_string_equal(CALLER("at::native::empty_cuda(...)", "solver.cpp:40:solve(int)", "main.cpp:3:main"),
                        "solver.cpp:40:solve(int)");
}

static void frames_of_recorders_allocators_and_interpreters_are_not_the_caller(void **state)
{
    (void)state;
    assert_string_equal(
        CALLER("torch::unwind::unwind()", "torch::CapturedTraceback::gather(bool, bool, bool)",
               "c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)", "??",
               "at::native::empty_cuda(...)"),
        "at::native::empty_cuda(...)");
    assert_string_equal(CALLER("/usr/src/python/Python/ceval.c:4:_PyEval_EvalFrameDefault",
                               "/pytorch/aten/src/ATen/core/boxing/KernelFunction.h:1:call", "a.cpp:1:a"),
                        "a.cpp:1:a");
}

static void a_line_of_python_is_the_caller_whatever_its_name(void **state)
{
    (void)state;
    assert_string_equal(CALLER("/home/u/Registered/CachingAllocator.py:3:warm_start", "main.py:1:main"),
                        "/home/u/Registered/CachingAllocator.py:3:warm_start");
}

static void a_stack_of_machinery_alone_has_its_innermost_frame(void **state)
{
    (void)state;
    assert_string_equal(CALLER("torch::unwind::unwind()", "??"), "torch::unwind::unwind()");
}

static void a_trace_without_stacks_has_no_callers(void **state)
{
    (void)state;
    trace_stacks none = { 0 };
    uint8_t *ranks = caller_ranks(&none);
    uint32_t frames[CALLER_SHOWN];
    assert_int_equal(caller_list(&none, ranks, 0, frames), 0);
    assert_string_equal(caller_first(&none, ranks, 7), "");
    free(ranks);
}

static void at_most_so_many_callers_are_listed(void **state)
{
    (void)state;
    char *text[] = { (char *)"malloc", (char *)"a.py:1:f" };
    uint32_t items[1 + 2 * CALLER_SHOWN] = { 0 }, frames[CALLER_SHOWN];
    size_t first[] = { 0, 0, COUNT(items) };
    for (size_t i = 1; i < COUNT(items); i++) items[i] = 1;
    trace_stacks s = { .frames = text, .frame_count = 2, .items = items, .first = first, .count = 2 };
    uint8_t *ranks = caller_ranks(&s);
    assert_int_equal(caller_list(&s, ranks, 1, frames), CALLER_SHOWN);
    assert_int_equal(frames[0], 1);
    free(ranks);
}

static void a_function_is_named_behind_the_line(void **state)
{
    (void)state;
    assert_string_equal(caller_function("a.cpp:12:at::f(int)"), "at::f(int)");
    assert_string_equal(caller_function("at::f(int)"), "at::f(int)");
    assert_string_equal(caller_function("solver:0x4c1d"), "solver:0x4c1d");
    assert_string_equal(caller_function(":12:"), ":12:");
    assert_string_equal(caller_function(""), "");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(python_is_found_behind_compiled_code),
        cmocka_unit_test(a_line_is_preferred_to_a_name),
        cmocka_unit_test(frames_of_recorders_allocators_and_interpreters_are_not_the_caller),
        cmocka_unit_test(a_line_of_python_is_the_caller_whatever_its_name),
        cmocka_unit_test(a_stack_of_machinery_alone_has_its_innermost_frame),
        cmocka_unit_test(a_trace_without_stacks_has_no_callers),
        cmocka_unit_test(at_most_so_many_callers_are_listed),
        cmocka_unit_test(a_function_is_named_behind_the_line),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
