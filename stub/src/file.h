/* Chunks of a trace file that the program writes itself, and the directory it is in. */
#ifndef FENTRY_FILE_H
#define FENTRY_FILE_H
#include "control.h"

enum {
	/* bytes of a window, and its alignment in the file: with both, file systems use large
	   folios, and a page costs a tenth */
	LARGE = 4 << 20,
	RANGES_END = 16 << 10,  /* end of the table of id ranges in it, which has its blocks from the start */
	HEADER_ROOM = 64 << 10, /* size of the header in files made here, so that chunks are aligned */
	PATH = 4096,
};

/* file.c */
extern hidden char *file_path;
hidden i64 file_use(i64 fd, const u8 *head);
hidden int file_join(i64 fd, const u8 *head, const char *path);
hidden i64 file_extend(i64 fd, u64 size);
hidden int file_chunks(struct chunk *out, u32 n);
hidden void file_done(struct chunk *k);

/* directory.c */
hidden int file_create(const char *dir);

#endif
