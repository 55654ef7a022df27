# weir as its users get it: headers alone, the library file, an installed copy linked from outside.

find_program(WEIR_CXX NAMES g++ c++ clang++-19 clang++)
set(consume ${PROJECT_SOURCE_DIR}/tests/consume)
if(NOT WEIR_CXX)
    message(WARNING "no C++ compiler: the tests of the installed copy are left out")
    return()
endif()

weir_test(consume/headers consume
    ${BASH} ${consume}/check_headers.sh ${PROJECT_SOURCE_DIR}/include ${CMAKE_C_COMPILER} ${WEIR_CXX})
weir_test(consume/vendor consume
    ${BASH} ${consume}/check_vendor.sh ${PROJECT_SOURCE_DIR}/include ${consume} ${CMAKE_C_COMPILER} ${WEIR_CXX})

# Instrumented libraries need their run-time linked first; plain programs cannot use them.
if(WEIR_SANITIZE OR CMAKE_C_FLAGS_DEBUG MATCHES "--coverage" OR NOT TARGET weir-tool)
    return()
endif()
set(adapters)
if(TARGET weir_adapters)
    set(adapters $<TARGET_FILE:weir_adapters>)
endif()
weir_test(consume/elf consume
    ${BASH} ${consume}/check_elf.sh $<TARGET_FILE:weir> ${PROJECT_SOURCE_DIR}/include ${adapters})
weir_test(consume/folders consume ${BASH} ${consume}/check_folders.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER})
weir_test(consume/subproject consume
    ${BASH} ${consume}/check_subproject.sh ${PROJECT_SOURCE_DIR} ${CMAKE_C_COMPILER})

set(prefix ${PROJECT_BINARY_DIR}/tests/prefix)
weir_test(consume/install consume
    ${CMAKE_COMMAND} --install ${PROJECT_BINARY_DIR} --prefix ${prefix})
weir_test(consume/pkgconfig consume
    ${BASH} ${consume}/check_pkgconfig.sh ${prefix} ${consume} ${CMAKE_C_COMPILER} ${WEIR_CXX})
weir_test(consume/package consume
    ${BASH} ${consume}/check_package.sh ${prefix} ${consume} ${PROJECT_VERSION} ${CMAKE_C_COMPILER} ${WEIR_CXX})
set(language ${BASH} ${consume}/check_language.sh ${prefix})
weir_test(consume/rust consume ${language} ${PROJECT_SOURCE_DIR}/examples/threads.rs rustc -O -D warnings)
weir_test(consume/fortran consume
    ${language} ${PROJECT_SOURCE_DIR}/examples/streams.f90 gfortran -std=f2008 -Wall -Werror)
set_tests_properties(consume/install PROPERTIES FIXTURES_SETUP installed)
set_tests_properties(consume/pkgconfig consume/package consume/rust consume/fortran PROPERTIES FIXTURES_REQUIRED installed)
