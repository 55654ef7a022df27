# Embeds files in the command: cmake -D OUTPUT=FILE -D FILES=LIST -P embed.cmake writes a C source with an
# asset (tools/view/assets.h) per file.
set(text "/* Written by cmake/embed.cmake. */\n#include \"view/assets.h\"\n")
foreach(file ${FILES})
    get_filename_component(name ${file} NAME)
    string(REPLACE "." "_" name ${name})
    file(READ ${file} bytes HEX)
    string(LENGTH "${bytes}" digits)
    math(EXPR count "${digits} / 2")
    string(REGEX REPLACE "([0-9a-f][0-9a-f])" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "((0x..,){24})" "\\1\n" bytes "${bytes}")
    string(APPEND text "\nconst asset asset_${name} = { (const unsigned char[]){\n${bytes}\n}, ${count} };\n")
endforeach()
file(WRITE ${OUTPUT} "${text}")
