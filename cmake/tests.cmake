# Tests by folder: the folder is the label, `ctest -L unit` runs one kind. A test that exits 77 was skipped.

find_program(BASH bash REQUIRED)

# Tests ask for impossible amounts of memory and expect to be refused, not killed.
set(sanitizer_environment
    "ASAN_OPTIONS=allocator_may_return_null=1:strict_string_checks=1:detect_stack_use_after_return=1"
    "UBSAN_OPTIONS=print_stacktrace=1"
    "TSAN_OPTIONS=allocator_may_return_null=1:halt_on_error=1:second_deadlock_stack=1")

# Otherwise a report has addresses instead of functions.
find_program(WEIR_SYMBOLIZER NAMES llvm-symbolizer-19 llvm-symbolizer)
if(WEIR_SYMBOLIZER)
    list(TRANSFORM sanitizer_environment APPEND ":external_symbolizer_path=${WEIR_SYMBOLIZER}")
endif()

# Tests choose their options: none comes from the caller's environment.
file(STRINGS ${PROJECT_SOURCE_DIR}/src/base/options.def option_rows REGEX "^X[(]")
set(no_options)
foreach(row ${option_rows})
    string(REGEX MATCH "[a-z][a-z0-9_]*" option "${row}")
    string(TOUPPER ${option} option)
    list(APPEND no_options "WEIR_${option}=unset:")
endforeach()

# For scripts/gpu --sanitize.
set(WEIR_GPU_LAUNCHER "" CACHE STRING "Command, with its options, that the tests of label gpu are run by")
set(WEIR_GPU_TIMEOUT 120 CACHE STRING "Seconds that a test of label gpu may take")

# weir_test(NAME LABEL COMMAND...): runs in its own empty folder. The limit is for what hangs: the slowest tests take
# 30 s with a sanitizer on a machine that has nothing else to do.
function(weir_test name label)
    set(folder ${PROJECT_BINARY_DIR}/tests/run/${name})
    file(MAKE_DIRECTORY ${folder})
    set(command ${ARGN})
    set(timeout 600)
    if(label STREQUAL "gpu")
        set(timeout ${WEIR_GPU_TIMEOUT})
        set(command ${WEIR_GPU_LAUNCHER} $<TARGET_FILE:${ARGN}>)
    endif()
    add_test(NAME ${name} COMMAND ${command} WORKING_DIRECTORY ${folder})
    set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${timeout} SKIP_RETURN_CODE 77
        ENVIRONMENT_MODIFICATION "${no_options}")
    if(WEIR_SANITIZE)
        set_tests_properties(${name} PROPERTIES ENVIRONMENT "${sanitizer_environment}")
    endif()
endfunction()

function(weir_test_executable target source)
    add_executable(${target} ${source} ${ARGN})
    set_target_properties(${target} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE WEIR_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
    target_compile_options(${target} PRIVATE ${WEIR_TEST_WARNINGS})
    target_include_directories(${target} PRIVATE src tests tools)
endfunction()

# Models of protocols, checked in every state. Without the step that makes it correct, a model must fail.
if(NOT WEIR_SANITIZE)
    weir_test(model/bias model ${PROJECT_SOURCE_DIR}/tests/model/check ${PROJECT_SOURCE_DIR}/tests/model/bias.pml)
    weir_test(model/bias_without_fence model
        ${PROJECT_SOURCE_DIR}/tests/model/check ${PROJECT_SOURCE_DIR}/tests/model/bias.pml -DNO_MEMBARRIER)
    set_tests_properties(model/bias_without_fence PROPERTIES PASS_REGULAR_EXPRESSION "assertion violated .critical==1.")
    set(mistakes_ways COUNT_FIRST READ_LATE)
    set(mistakes_claim NO_WAIT ONE_MARK)
    set(mistakes_detach NO_SECOND_LOOK ONE_LOCK)
    set(mistakes_nested NO_MEMBARRIER ONE_WORD TRY_MUTEX_ONLY)
    set(mistakes_post NO_LOCK TRUST_OPEN LEAVE_POSTS)
    set(mistakes_route SERIAL_FIRST UNORDERED)
    set(mistakes_side NO_CLAIM MAIN_UNCLAIMED TRUST_CLOSED)
    set(mistakes_stale BASE_FIRST UNORDERED)
    foreach(model claim detach nested post route side stale ways)
        weir_test(model/${model} model
            ${PROJECT_SOURCE_DIR}/tests/model/check ${PROJECT_SOURCE_DIR}/tests/model/${model}.pml)
        foreach(mistake ${mistakes_${model}})
            weir_test(model/${model}_${mistake} model
                ${PROJECT_SOURCE_DIR}/tests/model/check ${PROJECT_SOURCE_DIR}/tests/model/${model}.pml -D${mistake})
            set_tests_properties(model/${model}_${mistake} PROPERTIES PASS_REGULAR_EXPRESSION "assertion violated")
        endforeach()
    endforeach()
endif()

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source ${fuzz_sources})
    get_filename_component(name ${source} NAME_WE)
    if(WEIR_FUZZ)
        weir_test_executable(${name} ${source})
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
    else()
        # Without libFuzzer the seeds and past findings are a regression test.
        weir_test_executable(${name} ${source} tests/fuzz/run_corpus.c)
        string(REGEX REPLACE "^fuzz_" "" thing ${name})
        weir_test(fuzz/${thing} fuzz ${name} ${PROJECT_SOURCE_DIR}/tests/fuzz/corpus/${thing})
    endif()
    target_link_libraries(${name} PRIVATE weir_tools weir_static)
endforeach()
if(NOT WEIR_TESTS)
    return()
endif()

pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
include(cmake/standin.cmake)
foreach(folder unit contract fail stress gpu)
    file(GLOB sources CONFIGURE_DEPENDS tests/${folder}/test_*.c)
    foreach(source ${sources})
        get_filename_component(file ${source} NAME_WE)
        string(REGEX REPLACE "^test_" "" thing ${file})
        set(target ${folder}_${thing})
        weir_test_executable(${target} ${source})
        if(file MATCHES "^test_(config|input|output|peer|plan|replay|script|timeline)")
            target_link_libraries(${target} PRIVATE weir_tools)
        endif()
        target_link_libraries(${target} PRIVATE weir_static PkgConfig::CMOCKA)
        if(file STREQUAL "test_input_snapshot")
            target_link_options(${target} PRIVATE -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc)
        endif()
        weir_test(${folder}/${thing} ${folder} ${target})
    endforeach()
endforeach()

# A library that is found, and cannot be loaded because the one it needs is not.
foreach(thing lacking incomplete)
    add_library(${thing} SHARED tests/standin/empty.c)
    set_target_properties(${thing} PROPERTIES SKIP_BUILD_RPATH TRUE
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/${thing})
endforeach()
target_link_libraries(incomplete PRIVATE -Wl,--no-as-needed lacking)
set_target_properties(unit_dl PROPERTIES BUILD_RPATH ${PROJECT_BINARY_DIR}/tests/incomplete)
add_dependencies(unit_dl incomplete)

# What maps memory of all sizes, on a machine with large pages. A sanitizer has a mmap() of its own.
if(NOT WEIR_SANITIZE)
    add_library(large_pages SHARED tests/standin/large_pages.c)
    set_target_properties(large_pages PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_definitions(large_pages PRIVATE _GNU_SOURCE)
    target_link_libraries(large_pages PRIVATE ${CMAKE_DL_LIBS})
    foreach(thing debug pause)
        weir_test(unit/${thing}_large_pages unit unit_${thing})
        set_tests_properties(unit/${thing}_large_pages PROPERTIES ENVIRONMENT LD_PRELOAD=$<TARGET_FILE:large_pages>)
    endforeach()
endif()

# The part of every stand-in for a driver besides its own: the host back end does the work.
file(GLOB standin_driver_sources CONFIGURE_DEPENDS tests/standin/driver/*.c src/backend/host/*.c)
foreach(file fork lock log meta size sized status unsignalled utf8 worker)
    list(APPEND standin_driver_sources src/base/${file}.c)
endforeach()
function(weir_standin_objects target)
    add_library(${target} OBJECT ${ARGN})
    weir_strict(${target})
    target_include_directories(${target} PRIVATE include src tests)
    target_compile_options(${target} PRIVATE -fvisibility=hidden)
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON)
endfunction()
weir_standin_objects(standin_driver_objects ${standin_driver_sources})
include(cmake/standin_cuda.cmake)
include(cmake/standin_hip.cmake)

# Stress tests depend on timing under load, so they should not share the machine with each other.
file(GLOB sources CONFIGURE_DEPENDS tests/stress/test_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" thing ${file})
    set_tests_properties(stress/${thing} PROPERTIES PROCESSORS 2)
endforeach()

# Examples about other libraries: left out where those are not installed, and under the thread sanitizer, which cannot
# see the synchronisation of an OpenMP run-time that was built without it.
include(CheckSymbolExists)
function(weir_example_needs name library header symbol)
    set(CMAKE_REQUIRED_LIBRARIES ${library})
    check_symbol_exists(${symbol} ${header} WEIR_HAS_${library})
    set(needs_${name} ${library} PARENT_SCOPE)
endfunction()
weir_example_needs(handles_user_kinds cholmod suitesparse/cholmod.h cholmod_start)
weir_example_needs(handles_onednn dnnl oneapi/dnnl/dnnl.h dnnl_matmul_desc_init)

file(GLOB sources CONFIGURE_DEPENDS examples/*.c)
foreach(source ${sources})
    get_filename_component(name ${source} NAME_WE)
    if(needs_${name} AND (NOT WEIR_HAS_${needs_${name}} OR WEIR_SANITIZE MATCHES "thread"))
        message(STATUS "examples/${name}.c is left out: ${needs_${name}} is not here or not for this build")
        continue()
    endif()
    add_executable(example_${name} ${source})
    set_target_properties(example_${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/examples)
    target_compile_options(example_${name} PRIVATE ${WEIR_WARNINGS} -pedantic)
    target_link_libraries(example_${name} PRIVATE weir ${needs_${name}} Threads::Threads)
    weir_test(examples/${name} examples example_${name})
endforeach()

# tests/cli/NAME.sh PATH-OF-WEIR; lib.sh is for sourcing.
if(TARGET weir-tool)
    file(GLOB scripts CONFIGURE_DEPENDS tests/cli/*.sh)
    list(FILTER scripts EXCLUDE REGEX "/lib\\.sh$")
    foreach(script ${scripts})
        get_filename_component(name ${script} NAME_WE)
        set(preloaded)
        if("${name}" STREQUAL "memory" AND NOT WEIR_SANITIZE) # a sanitizer has a malloc() of its own
            add_library(short_of_memory SHARED tests/cli/short_of_memory.c)
            set_target_properties(short_of_memory PROPERTIES LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
            target_compile_definitions(short_of_memory PRIVATE _GNU_SOURCE)
            target_link_libraries(short_of_memory PRIVATE ${CMAKE_DL_LIBS})
            set(preloaded $<TARGET_FILE:short_of_memory>)
        endif()
        weir_test(cli/${name} cli ${BASH} ${script} $<TARGET_FILE:weir-tool> ${preloaded})
    endforeach()
endif()

if(TARGET weir_adapters)
    include(tests/adapters/tests.cmake)
endif()

if(EXISTS ${PROJECT_SOURCE_DIR}/tests/consume/tests.cmake)
    include(tests/consume/tests.cmake)
endif()
