# Tests of the cuda back end. Without a GPU they run over a stand-in for libcuda.so.1, in which the host back end does the
# work; on a GPU (label gpu) over the driver, skipped where there is none.

file(GLOB standin_cuda_sources CONFIGURE_DEPENDS tests/standin/cuda/*.c)
weir_standin_objects(standin_cuda_objects ${standin_cuda_sources})

foreach(variant standin standin_old)
    set(map ${PROJECT_SOURCE_DIR}/tests/standin/cuda/${variant}.map)
    add_library(cuda_${variant} MODULE $<TARGET_OBJECTS:standin_cuda_objects> $<TARGET_OBJECTS:standin_driver_objects>)
    set_target_properties(cuda_${variant} PROPERTIES LINKER_LANGUAGE C LINK_DEPENDS ${map}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_link_options(cuda_${variant} PRIVATE LINKER:--version-script=${map} ${WEIR_ALL_DEFINED})
    target_link_libraries(cuda_${variant} PRIVATE Threads::Threads)
endforeach()

file(GLOB sources CONFIGURE_DEPENDS tests/unit/test_cuda_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "unit_" target ${file})
    target_compile_definitions(${target} PRIVATE CUDA_STANDIN="$<TARGET_FILE:cuda_standin>"
        CUDA_STANDIN_OLD="$<TARGET_FILE:cuda_standin_old>")
    add_dependencies(${target} cuda_standin cuda_standin_old)
endforeach()

# What scripts/gpu builds. Tests on one GPU look at its free memory, so they run one by one. Tests that rarely run on GPUs
# must not rot, so they also run on the stand-ins for driver and libraries, as far as those go.
add_custom_target(gpu-tests)
foreach(library cublas cublaslt cusparse cusolver cudnn cudss curand cutensor)
    string(TOUPPER WEIR_LIB_${library} variable)
    string(REPLACE cublaslt cublasLt file ${library})
    list(APPEND standin_environment "${variable}=${PROJECT_BINARY_DIR}/standin/lib${file}.so")
endforeach()
set(gpu_on_standins cuda cuda_capture_raw cuda_capture_table cuda_contents cuda_contexts cuda_debug cuda_graph cuda_leaks cuda_pause cuda_reset)
file(GLOB sources CONFIGURE_DEPENDS tests/gpu/test_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" thing ${file})
    target_link_libraries(gpu_${thing} PRIVATE m)
    add_dependencies(gpu-tests gpu_${thing})
    set_tests_properties(gpu/${thing} PROPERTIES RESOURCE_LOCK gpu)
    if(thing IN_LIST gpu_on_standins)
        add_dependencies(gpu_${thing} cuda_standin standins)
        weir_test(contract/standin_gpu_${thing} contract $<TARGET_FILE:gpu_${thing}>)
        set_property(TEST contract/standin_gpu_${thing} APPEND PROPERTY ENVIRONMENT
            "WEIR_LIB_CUDA=$<TARGET_FILE:cuda_standin>" ${standin_environment})
    endif()
endforeach()

# The contract, on the stand-in and on the driver.
file(GLOB sources CONFIGURE_DEPENDS tests/contract/test_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" thing ${file})
    add_dependencies(contract_${thing} cuda_standin)
    add_dependencies(gpu-tests contract_${thing})
    weir_test(contract/cuda_standin_${thing} contract contract_${thing})
    set_property(TEST contract/cuda_standin_${thing} APPEND PROPERTY ENVIRONMENT
        "WEIR_CONTRACT_BACKEND=cuda" "WEIR_LIB_CUDA=$<TARGET_FILE:cuda_standin>")
    weir_test(gpu/cuda_${thing} gpu contract_${thing})
    set_property(TEST gpu/cuda_${thing} APPEND PROPERTY ENVIRONMENT "WEIR_CONTRACT_BACKEND=cuda")
    set_tests_properties(gpu/cuda_${thing} PROPERTIES RESOURCE_LOCK gpu)
endforeach()
# Numbers, layouts and signatures are compared with the vendor's headers where those are installed.
find_path(CUDA_TYPEDEFS cudaTypedefs.h HINTS /usr/local/cuda/include)
if(CUDA_TYPEDEFS)
    add_library(abi_cuda OBJECT tests/gpu/abi_cuda.c)
    target_include_directories(abi_cuda SYSTEM PRIVATE ${CUDA_TYPEDEFS})
    target_include_directories(abi_cuda PRIVATE src)
    add_dependencies(gpu-tests abi_cuda)
endif()
