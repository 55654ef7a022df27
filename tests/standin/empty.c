/* A library of which only matters that it is there. */
const int standin_empty = 0;
