/*
 * assets: the page's own files, embedded in the command; cmake/embed.cmake makes them from files in this folder.
 */
#ifndef WEIR_TOOLS_VIEW_ASSETS_H
#define WEIR_TOOLS_VIEW_ASSETS_H

#include <stddef.h>

typedef struct asset {
    const unsigned char *bytes;
    size_t count;
} asset;

extern const asset asset_report_html, asset_report_css, asset_data_js, asset_bands_js, asset_colours_js, asset_chart_js,
    asset_segments_js, asset_search_js, asset_report_js;

#endif
