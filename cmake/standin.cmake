# Stand-ins for the vendors' libraries, for tests: tests/standin/NAME.def becomes standin/libNAME.so, with the soname of
# the version that it stands for. Those not named here are variants that no loader should find by name.
set(standin_versions cublas 13 cublasLt 13 cusparse 12 cusolver 12 cudnn 9 cudss 0 curand 10 cutensor 2
    MIOpen 1 rocblas 5 hipblas 3 hipblaslt 1 rocsparse 1 hipsparse 4 hipsolver 1 rocrand 1)

add_custom_target(standins ALL)
file(GLOB standin_tables CONFIGURE_DEPENDS tests/standin/*.def)
foreach(table ${standin_tables})
    get_filename_component(name ${table} NAME_WE)
    set(target standin_${name})
    add_library(${target} SHARED tests/standin/standin.c)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME ${name} OBJECT_DEPENDS ${table}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/standin)
    target_compile_definitions(${target} PRIVATE _GNU_SOURCE STANDIN_TABLE="${table}")
    target_compile_options(${target} PRIVATE ${WEIR_TEST_WARNINGS} -Wno-unused-function) # each file uses a part of it
    target_include_directories(${target} PRIVATE tests)
    target_link_libraries(${target} PRIVATE Threads::Threads ${CMAKE_DL_LIBS})
    list(FIND standin_versions ${name} index)
    if(NOT index EQUAL -1)
        math(EXPR index "${index} + 1")
        list(GET standin_versions ${index} version)
        set_target_properties(${target} PROPERTIES SOVERSION ${version})
    endif()
    add_dependencies(standins ${target})
endforeach()
add_compile_definitions(WEIR_TEST_STANDINS="${PROJECT_BINARY_DIR}/standin")
