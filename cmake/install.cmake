# What `make install` installs: headers, both libraries, the command, manual pages, and how others find them.
include(CMakePackageConfigHelpers)

install(DIRECTORY include/weir DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(FILES adapters/rmm/weir/rmm.hpp DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/weir)
install(TARGETS weir weir_static EXPORT weirTargets
    LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR})
if(TARGET weir-tool)
    install(TARGETS weir-tool RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# The prefix relative to the installed files, so that a tree may be moved. Folders given as absolute paths stay absolute,
# because they need not lie in the prefix.
file(RELATIVE_PATH to_prefix ${CMAKE_INSTALL_FULL_LIBDIR}/pkgconfig ${CMAKE_INSTALL_PREFIX})
set(WEIR_PC_PREFIX "\${pcfiledir}/${to_prefix}")
if(IS_ABSOLUTE ${CMAKE_INSTALL_LIBDIR})
    set(WEIR_PC_PREFIX ${CMAKE_INSTALL_PREFIX})
endif()
foreach(folder LIBDIR INCLUDEDIR)
    set(WEIR_PC_${folder} "\${prefix}/${CMAKE_INSTALL_${folder}}")
    if(IS_ABSOLUTE ${CMAKE_INSTALL_${folder}})
        set(WEIR_PC_${folder} ${CMAKE_INSTALL_${folder}})
    endif()
endforeach()
configure_file(cmake/weir.pc.in weir.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/weir.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/weir)
configure_package_config_file(cmake/weirConfig.cmake.in weirConfig.cmake INSTALL_DESTINATION ${package_dir})
# Before 1.0 every minor version may break callers.
write_basic_package_version_file(weirConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(EXPORT weirTargets NAMESPACE weir:: DESTINATION ${package_dir})
install(FILES ${PROJECT_BINARY_DIR}/weirConfig.cmake ${PROJECT_BINARY_DIR}/weirConfigVersion.cmake
    DESTINATION ${package_dir})

# docs/man/NAME.SECTION.scd, all of them about the command
if(TARGET weir-tool)
    file(GLOB manual_sources CONFIGURE_DEPENDS docs/man/*.scd)
endif()
find_program(SCDOC scdoc)
if(manual_sources AND SCDOC)
    foreach(source ${manual_sources})
        get_filename_component(page ${source} NAME_WLE)
        string(REGEX MATCH "[0-9]$" section ${page})
        set(output ${PROJECT_BINARY_DIR}/man/man${section}/${page})
        add_custom_command(OUTPUT ${output}
            COMMAND ${CMAKE_COMMAND} -E make_directory ${PROJECT_BINARY_DIR}/man/man${section}
            COMMAND sh -c "\"$1\" < \"$2\" > \"$3\"" sh ${SCDOC} ${source} ${output}
            DEPENDS ${source} COMMENT "Manual page ${page}" VERBATIM)
        list(APPEND manual_pages ${output})
    endforeach()
    add_custom_target(man ALL DEPENDS ${manual_pages})
    install(DIRECTORY ${PROJECT_BINARY_DIR}/man/ DESTINATION ${CMAKE_INSTALL_MANDIR})
elseif(manual_sources)
    message(STATUS "no manual pages: scdoc is not found")
endif()
