# Compiler flags, each with its reason.

set(CMAKE_C_STANDARD 11)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_UNITY_BUILD OFF) # static functions of different files have the same names
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
    set(CMAKE_BUILD_TYPE Release CACHE STRING "Build type" FORCE)
endif()
if(CMAKE_C_FLAGS_RELEASE STREQUAL "-O3 -DNDEBUG") # CMake's own, which nobody has chosen
    set(CMAKE_C_FLAGS_RELEASE "-O2 -DNDEBUG")
endif()

set(WEIR_WARNINGS -Wall -Wextra -Wshadow -Wpointer-arith -Wstrict-prototypes -Wmissing-prototypes -Wwrite-strings -Wundef
    -Wvla)
# Tests check refusals by breaking rules: they keep the warnings that find bugs and drop those about style.
set(WEIR_TEST_WARNINGS -Wall -Wextra -Wstrict-prototypes -Wwrite-strings)
if(WEIR_WERROR)
    add_compile_options(-Werror)
endif()

# Only WEIR_API symbols leave the library, and calls between its own files need no indirection.
# -ftree-slp-vectorize would gather two neighbouring sums in a vector register: four instructions more than two additions to
# memory.
set(WEIR_LIBRARY_FLAGS -fvisibility=hidden -fno-semantic-interposition -fno-tree-slp-vectorize)
# The hit path reads thread-local data several times: initial-exec makes that one instruction instead of a call. The
# price is static TLS space, of which a program has little for libraries loaded by dlopen: tests/consume/check_elf
# holds the library to a budget.
list(APPEND WEIR_LIBRARY_FLAGS -ftls-model=initial-exec)

# A thread that ends calls the library's exit hook, so the code stays loaded: dlclose() is harmless, and so are threads
# that outlive it.
set(WEIR_LIBRARY_LINK_FLAGS LINKER:--as-needed LINKER:-z,nodelete)
if(WEIR_SANITIZE)
    add_compile_options(-fsanitize=${WEIR_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer)
    add_link_options(-fsanitize=${WEIR_SANITIZE})
elseif(PROJECT_IS_TOP_LEVEL)
    # Not with sanitizers: a sanitized library takes its run-time symbols from the program. A project that adds this one
    # may sanitize everything by flags of its own.
    set(WEIR_ALL_DEFINED LINKER:-z,defs)
    list(APPEND WEIR_LIBRARY_LINK_FLAGS ${WEIR_ALL_DEFINED})
endif()
if(WEIR_FUZZ)
    add_compile_options(-fsanitize=fuzzer-no-link)
endif()
if(WEIR_CCACHE)
    find_program(CCACHE ccache)
    if(CCACHE)
        set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE})
    endif()
endif()

# Warnings for src/, tools/ and bench/.
function(weir_strict target)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
    target_compile_options(${target} PRIVATE ${WEIR_WARNINGS})
endfunction()
