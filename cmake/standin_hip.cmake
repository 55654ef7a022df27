# Tests of the hip back end. Without an AMD GPU they run over stand-ins for libamdhip64, in which the host back end does
# the work: one per major version of ROCm, with its soname and version nodes, each in a folder of its own, so that
# LD_LIBRARY_PATH can put it under AMD's libraries. On a GPU (label gpu) they run over the runtime, skipped without one.

file(GLOB standin_hip_sources CONFIGURE_DEPENDS tests/standin/hip/*.c)
list(FILTER standin_hip_sources EXCLUDE REGEX "/version\\.c$")
weir_standin_objects(standin_hip_objects ${standin_hip_sources})

foreach(major 5 6 7)
    set(map ${PROJECT_SOURCE_DIR}/tests/standin/hip/standin_${major}.map)
    if(major EQUAL 7)
        set(map ${PROJECT_SOURCE_DIR}/tests/standin/hip/standin_6.map)
    endif()
    set(target hip_standin_${major})
    add_library(${target} SHARED $<TARGET_OBJECTS:standin_hip_objects> $<TARGET_OBJECTS:standin_driver_objects>
        tests/standin/hip/version.c)
    target_compile_definitions(${target} PRIVATE STANDIN_HIP_MAJOR=${major})
    target_include_directories(${target} PRIVATE include src tests)
    set_target_properties(${target} PROPERTIES OUTPUT_NAME amdhip64 SOVERSION ${major} LINK_DEPENDS ${map}
        C_VISIBILITY_PRESET hidden LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/rocm${major})
    target_link_options(${target} PRIVATE LINKER:--version-script=${map} ${WEIR_ALL_DEFINED})
    target_link_libraries(${target} PRIVATE Threads::Threads)
    list(APPEND hip_standins ${target})
    list(APPEND hip_standin_names HIP_STANDIN_${major}="$<TARGET_FILE:${target}>")
endforeach()

file(GLOB sources CONFIGURE_DEPENDS tests/unit/test_hip_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "unit_" target ${file})
    target_compile_definitions(${target} PRIVATE ${hip_standin_names} CUDA_STANDIN="$<TARGET_FILE:cuda_standin>")
    add_dependencies(${target} ${hip_standins} cuda_standin)
endforeach()

# What scripts/gpu builds.
add_dependencies(gpu-tests gpu_hip gpu_hip_handles)
set_tests_properties(gpu/hip gpu/hip_handles PROPERTIES RESOURCE_LOCK gpu)

# The contract, on the stand-ins and on the runtime; also where there is no virtual memory. What a stand-in has nothing
# of is left out: every test of it would be skipped.
set(hip_standins_lack 5_vm 5_share 6_share 7_share)
file(GLOB sources CONFIGURE_DEPENDS tests/contract/test_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" thing ${file})
    add_dependencies(contract_${thing} ${hip_standins})
    foreach(major 5 6 7)
        if(${major}_${thing} IN_LIST hip_standins_lack)
            continue()
        endif()
        set(name contract/hip${major}_standin_${thing})
        weir_test(${name} contract contract_${thing})
        set_property(TEST ${name} APPEND PROPERTY ENVIRONMENT "WEIR_CONTRACT_BACKEND=hip"
            "WEIR_LIB_HIP=$<TARGET_FILE:hip_standin_${major}>")
    endforeach()
    weir_test(gpu/hip_${thing} gpu contract_${thing})
    set_property(TEST gpu/hip_${thing} APPEND PROPERTY ENVIRONMENT "WEIR_CONTRACT_BACKEND=hip")
    set_tests_properties(gpu/hip_${thing} PROPERTIES RESOURCE_LOCK gpu)
endforeach()

# Tests that rarely run on GPUs must not rot, so they also run on the stand-ins for runtime and libraries.
foreach(library MIOpen rocblas hipblas hipblaslt rocsparse hipsparse hipsolver rocrand)
    string(TOUPPER WEIR_LIB_${library} variable)
    list(APPEND hip_libraries "${variable}=${PROJECT_BINARY_DIR}/standin/lib${library}.so")
endforeach()
foreach(thing hip hip_handles)
    weir_test(contract/standin_gpu_${thing} contract gpu_${thing})
    set_property(TEST contract/standin_gpu_${thing} APPEND PROPERTY ENVIRONMENT
        "WEIR_LIB_HIP=$<TARGET_FILE:hip_standin_6>" "STANDIN_HIP_MEMORY=16GiB" ${hip_libraries})
    add_dependencies(gpu_${thing} hip_standin_6 standins)
endforeach()

# Numbers, layouts and signatures are compared with AMD's headers where those are installed.
find_path(HIP_HEADERS hip/hip_runtime_api.h HINTS /opt/rocm/include ${PROJECT_SOURCE_DIR}/.amd/debian12/usr/include)
if(HIP_HEADERS)
    add_library(abi_hip OBJECT tests/gpu/abi_hip.c)
    target_include_directories(abi_hip SYSTEM PRIVATE ${HIP_HEADERS})
    target_include_directories(abi_hip PRIVATE src tests)
    add_dependencies(gpu-tests abi_hip)
endif()

# Suites of pools, handles and threads that use no controls of the host back end; stress/threads needs a small device.
foreach(suite unit/api_history unit/inspect unit/handle_borrow unit/handle_vendor stress/stress_handles stress/threads)
    string(REPLACE "/" "_" target ${suite})
    get_filename_component(folder ${suite} DIRECTORY)
    get_filename_component(thing ${suite} NAME)
    set(memory 16GiB)
    if(thing STREQUAL "threads")
        set(memory 96MiB)
    endif()
    weir_test(${folder}/hip_standin_${thing} ${folder} ${target})
    set_property(TEST ${folder}/hip_standin_${thing} APPEND PROPERTY ENVIRONMENT "TEST_BACKEND=hip"
        "WEIR_LIB_HIP=$<TARGET_FILE:hip_standin_6>" "STANDIN_HIP_MEMORY=${memory}")
    add_dependencies(${target} hip_standin_6)
endforeach()
set_tests_properties(stress/hip_standin_stress_handles stress/hip_standin_threads PROPERTIES PROCESSORS 2)

# AMD's own libraries, where scripts/amd-bundle has put those of Debian 12: they run over the stand-in of their runtime,
# and the runtime itself says that there is no device. A sanitizer would find fault with them, not with weir.
set(WEIR_AMD "${PROJECT_SOURCE_DIR}/.amd" CACHE PATH "What scripts/amd-bundle made")
if(NOT WEIR_SANITIZE)
    set(root ${WEIR_AMD}/debian12)
    weir_test(amd/libraries amd ${BASH} ${PROJECT_SOURCE_DIR}/tests/amd/on-standin ${root}
        $<TARGET_FILE_DIR:hip_standin_5> $<TARGET_FILE:gpu_hip_handles>)
    weir_test(amd/exit amd ${BASH} ${PROJECT_SOURCE_DIR}/tests/amd/on-standin ${root}
        $<TARGET_FILE_DIR:hip_standin_5> $<TARGET_FILE:gpu_hip_handles> --exit)
    weir_test(amd/runtime amd ${BASH} ${PROJECT_SOURCE_DIR}/tests/amd/on-standin ${root}
        ${root}/usr/lib/x86_64-linux-gnu $<TARGET_FILE:unit_hip_real>)
    set_property(TEST amd/runtime APPEND PROPERTY ENVIRONMENT
        "WEIR_LIB_HIP=${root}/usr/lib/x86_64-linux-gnu/libamdhip64.so.5")
    add_dependencies(gpu_hip_handles hip_standin_5)
endif()
