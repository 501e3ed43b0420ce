/* Where libraries were found when the index was built, as agent/import_index/libraries.py writes it. One line each,
   fields between tabs:
       E  program                       the map is for this one only
       V  LD_LIBRARY_PATH               as it was
       G  GLIBC_TUNABLES                as it was
       D  inode mtime_ns ctime_ns path  a folder that was searched in vain and must not have changed since
       M  path                          a folder that was not there
       C  size mtime_ns path            the loader's cache
       F  chain name size mtime_ns path the library found under this name for an object with this chain of loaders */
#ifndef RANKSCOPE_LIBRARIES_MAP_H
#define RANKSCOPE_LIBRARIES_MAP_H

#include <stdint.h>

/* The chain of an object is itself and who loaded it, up to the program: search paths are inherited along it. */
uint64_t rs_chain(uint64_t loader, const char *name);

/* Reads the map for this program; 0 where it is not for it, or not to be trusted. */
int rs_map_open(const char *path);

/* The path of a library that is still as recorded, or NULL. */
const char *rs_map_find(uint64_t chain, const char *name);

#endif
