/* Runs through the whole table with every kind of line meaning ENTRY(name). The includer defines ENTRY. */
#define SEND(name, ...) ENTRY(RS_TWIN(name))
#define RECEIVE SEND
#define SENDRECV SEND
#define MRECEIVE SEND
#define ISEND SEND
#define IRECEIVE SEND
#define IMRECEIVE SEND
#define ISENDRECV SEND
#define SEND_INIT SEND
#define RECEIVE_INIT SEND
#define PSEND_INIT SEND
#define PRECEIVE_INIT SEND
#define COLLECTIVE SEND
#define ICOLLECTIVE SEND
#define COLLECTIVE_INIT SEND
#define PLAIN SEND
#define IPLAIN SEND
#define PROBE SEND
#define NEW_COMM SEND
#define NEW_COMM_APART SEND
#define NEW_WINDOW SEND
#define FREE_COMM SEND
#define SPECIAL SEND

#define RS_TWIN(name) name
#define RS_SECTION 1
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 2
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 3
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 4
#include "mpi_functions.h"
#undef RS_SECTION
#undef RS_TWIN

#define RS_TWIN(name) name##_c
#define RS_SECTION 1
#include "mpi_functions.h"
#undef RS_SECTION
#define RS_SECTION 2
#include "mpi_functions.h"
#undef RS_SECTION
#undef RS_TWIN

#undef SEND
#undef RECEIVE
#undef SENDRECV
#undef MRECEIVE
#undef ISEND
#undef IRECEIVE
#undef IMRECEIVE
#undef ISENDRECV
#undef SEND_INIT
#undef RECEIVE_INIT
#undef PSEND_INIT
#undef PRECEIVE_INIT
#undef COLLECTIVE
#undef ICOLLECTIVE
#undef COLLECTIVE_INIT
#undef PLAIN
#undef IPLAIN
#undef PROBE
#undef NEW_COMM
#undef NEW_COMM_APART
#undef NEW_WINDOW
#undef FREE_COMM
#undef SPECIAL
