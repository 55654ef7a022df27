# The adapters on the host back end, called as PyTorch and CuPy call them. Neither is needed: stand-ins take their place.
set(adapters ${PROJECT_SOURCE_DIR}/tests/adapters)

# The adapters look for these names in the process.
foreach(library c10 c10_cuda torch_cuda)
    add_library(standin_${library} SHARED ${adapters}/standin/${library}.cpp)
    set_target_properties(standin_${library} PROPERTIES OUTPUT_NAME ${library}
        LIBRARY_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests/standin_torch)
endforeach()
target_link_libraries(standin_c10_cuda PRIVATE standin_c10)
target_link_libraries(standin_torch_cuda PRIVATE standin_c10_cuda)
if(WEIR_SANITIZE)
    # As PyTorch's: the sanitizer puts a red zone into the size of a table of virtual functions, and has functions know their
    # types, which are other ones where weir calls them.
    target_compile_options(standin_c10 PRIVATE -fno-sanitize=all)
    target_compile_options(standin_torch_cuda PRIVATE -fno-sanitize=all)
    target_compile_options(standin_c10_cuda PRIVATE -fno-sanitize=all)
endif()
add_library(standin_pluggable OBJECT ${adapters}/pluggable.cpp)
target_compile_options(standin_pluggable PRIVATE -Wall -Wextra)

file(GLOB sources CONFIGURE_DEPENDS tests/adapters/test_*.c)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "" thing ${file})
    set(target adapters_${thing})
    weir_test_executable(${target} ${source} $<TARGET_OBJECTS:standin_pluggable>
        $<TARGET_OBJECTS:weir_adapters_objects>)
    set_target_properties(${target} PROPERTIES LINKER_LANGUAGE CXX)
    target_include_directories(${target} PRIVATE adapters)
    target_link_libraries(${target} PRIVATE weir_static PkgConfig::CMOCKA standin_torch_cuda standin_c10_cuda standin_c10)
    target_link_options(${target} PRIVATE LINKER:--no-as-needed)
    if(thing STREQUAL "torch_sharing")
        target_link_options(${target} PRIVATE LINKER:--wrap=setsockopt,--wrap=getsockopt,--wrap=listen)
    endif()
    weir_test(adapters/${thing} adapters ${target})
endforeach()

# Under the driver's rules, as far as its stand-in keeps them.
foreach(thing torch_graphs torch_hooks torch_sharing torch_sources)
    add_dependencies(adapters_${thing} cuda_standin)
    weir_test(adapters/${thing}_cuda_standin adapters adapters_${thing})
    set_property(TEST adapters/${thing}_cuda_standin APPEND PROPERTY ENVIRONMENT "TEST_BACKEND=cuda"
        "WEIR_LIB_CUDA=$<TARGET_FILE:cuda_standin>" STANDIN_CUDA_DEVICES=4)
endforeach()

add_executable(adapters_without_torch ${adapters}/without_torch.cpp $<TARGET_OBJECTS:weir_adapters_objects>)
set_target_properties(adapters_without_torch PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_link_libraries(adapters_without_torch PRIVATE weir_static)
weir_test(adapters/without_torch adapters ${CMAKE_COMMAND} -E env WEIR_BACKEND=host $<TARGET_FILE:adapters_without_torch>)

foreach(rmm now before)
    add_executable(adapters_rmm_${rmm} ${adapters}/rmm.cpp)
    set_target_properties(adapters_rmm_${rmm} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
    target_compile_options(adapters_rmm_${rmm} PRIVATE -Wall -Wextra)
    target_include_directories(adapters_rmm_${rmm} PRIVATE adapters/rmm ${adapters}/standin/rmm_${rmm}
        ${adapters}/standin/rmm_both)
    target_link_libraries(adapters_rmm_${rmm} PRIVATE weir_static)
    if(rmm STREQUAL before)
        target_compile_definitions(adapters_rmm_${rmm} PRIVATE CUDART_VERSION=12040)
    endif()
    weir_test(adapters/rmm_${rmm} adapters ${CMAKE_COMMAND} -E env WEIR_BACKEND=host WEIR_HOST_DEVICES=2
        $<TARGET_FILE:adapters_rmm_${rmm}>)
endforeach()

# The Python package. A Python without a sanitizer cannot load an instrumented library.
find_package(Python3 3.9 COMPONENTS Interpreter)
if(NOT Python3_FOUND OR WEIR_SANITIZE)
    return()
endif()
add_executable(adapters_layout ${adapters}/layout.c)
set_target_properties(adapters_layout PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/tests)
target_include_directories(adapters_layout PRIVATE include)
file(GLOB sources CONFIGURE_DEPENDS tests/adapters/python/test_*.py)
foreach(source ${sources})
    get_filename_component(file ${source} NAME_WE)
    string(REGEX REPLACE "^test_" "python_" thing ${file})
    weir_test(adapters/${thing} adapters ${CMAKE_COMMAND} -E env
        PYTHONPATH=${PROJECT_SOURCE_DIR}/adapters/python:${adapters}/python:${adapters}/python/standin
        PYTHONDONTWRITEBYTECODE=1 WEIR_LIBRARY=$<TARGET_FILE:weir> WEIR_BACKEND=host
        TEST_LAYOUT=$<TARGET_FILE:adapters_layout> TEST_CUDA=$<TARGET_FILE:cuda_standin>
        ${Python3_EXECUTABLE} -m unittest -v ${file})
endforeach()
