/* Every MPI function that is intercepted, as a table; included several times with different meanings of its words.
 *
 * A line is KIND(name, number of arguments, group, bytes, …). Argument positions count from 0. What the kinds do is
 * in mpi.c; PROBE is that of every call without bytes in which a rank may wait for another, so that `hang` sees it there;
 * PLAIN is for those that do not wait. Words for groups: COMM(i) WIN(i) FILE_(i) NONE. Words for bytes, see docs/reference/metrics.md:
 *   CT(c, t)        count in argument c times the size of the datatype in t
 *   PLACE(b, x, y)  x where buffer b is MPI_IN_PLACE, else y
 *   AT(c, i, t)     element i of the count array c, times the size of t
 *   SUM(c, n, t)    the first n elements of the count array c, times the size of t
 *   SUMW(c, n, t)   likewise with one datatype for each
 *   ONE(t)          one element of t
 *   TO_ROOT(r, x)   x, and nothing in the root's group of an intercommunicator: arguments there are not significant
 *   WITH_ROOT(r, x) x, and nothing beside MPI_ROOT
 *   TO_PEER(r, x)   x, and nothing where the other rank is MPI_PROC_NULL
 *   TO_SOME(n, x)   x, and nothing where n is 0
 * Only arguments that MPI calls significant may be read, because the others need not be valid.
 *
 * Sections: 1 in MPI 3 and with a large-count twin; 2 new in MPI 4, with a twin; 3 in MPI 3, no twin; 4 new in MPI 4.
 * What is new in MPI 4, and every twin, is exported only where the loaded MPI has it (mpi_exports.c).
 */

#if RS_SECTION == 1

/* point to point: …, dest, tag */
SEND(Send, 6, COMM(5), CT(1, 2), 3, 4)
SEND(Bsend, 6, COMM(5), CT(1, 2), 3, 4)
SEND(Ssend, 6, COMM(5), CT(1, 2), 3, 4)
SEND(Rsend, 6, COMM(5), CT(1, 2), 3, 4)
/* …, dest, tag, source, tag, status */
SENDRECV(Sendrecv, 12, COMM(10), CT(1, 2), 3, 4, 8, 9, 11)
SENDRECV(Sendrecv_replace, 9, COMM(7), CT(1, 2), 3, 4, 5, 6, 8)
/* …, source, tag, status */
RECEIVE(Recv, 7, COMM(5), 3, 4, 6)
/* message, status */
MRECEIVE(Mrecv, 5, 3, 4)
/* …, dest, tag, request */
ISEND(Isend, 7, COMM(5), CT(1, 2), 3, 4, 6)
ISEND(Ibsend, 7, COMM(5), CT(1, 2), 3, 4, 6)
ISEND(Issend, 7, COMM(5), CT(1, 2), 3, 4, 6)
ISEND(Irsend, 7, COMM(5), CT(1, 2), 3, 4, 6)
/* …, source, tag, request */
IRECEIVE(Irecv, 7, COMM(5), 3, 4, 6)
/* message, request */
IMRECEIVE(Imrecv, 5, 3, 4)
/* as ISEND and IRECEIVE */
SEND_INIT(Send_init, 7, COMM(5), CT(1, 2), 3, 4, 6)
SEND_INIT(Bsend_init, 7, COMM(5), CT(1, 2), 3, 4, 6)
SEND_INIT(Ssend_init, 7, COMM(5), CT(1, 2), 3, 4, 6)
SEND_INIT(Rsend_init, 7, COMM(5), CT(1, 2), 3, 4, 6)
RECEIVE_INIT(Recv_init, 7, COMM(5), 3, 4, 6)
/* waits until all that the buffer holds is sent */
PROBE(Buffer_detach, 2, NONE, NOBODY)

/* collectives: …, root (or -1) */
COLLECTIVE(Bcast, 5, COMM(4), WITH_ROOT(3, CT(1, 2)), ROOT(3))
COLLECTIVE(Gather, 8, COMM(7), TO_ROOT(6, PLACE(0, CT(4, 5), CT(1, 2))), ROOT(6))
COLLECTIVE(Gatherv, 9, COMM(8), TO_ROOT(7, PLACE(0, AT(4, MY_RANK, 6), CT(1, 2))), ROOT(7))
COLLECTIVE(Scatter, 8, COMM(7), TO_ROOT(6, PLACE(3, CT(1, 2), CT(4, 5))), ROOT(6))
COLLECTIVE(Scatterv, 9, COMM(8), TO_ROOT(7, PLACE(4, AT(1, MY_RANK, 3), CT(5, 6))), ROOT(7))
COLLECTIVE(Allgather, 7, COMM(6), PLACE(0, CT(4, 5), CT(1, 2)), -1)
COLLECTIVE(Allgatherv, 8, COMM(7), PLACE(0, AT(4, MY_RANK, 6), CT(1, 2)), -1)
COLLECTIVE(Alltoall, 7, COMM(6), PEERS * PLACE(0, CT(4, 5), CT(1, 2)), -1)
COLLECTIVE(Alltoallv, 9, COMM(8), PLACE(0, SUM(5, PEERS, 7), SUM(1, PEERS, 3)), -1)
COLLECTIVE(Alltoallw, 9, COMM(8), PLACE(0, SUMW(5, PEERS, 7), SUMW(1, PEERS, 3)), -1)
COLLECTIVE(Reduce, 7, COMM(6), WITH_ROOT(5, CT(2, 3)), ROOT(5))
COLLECTIVE(Allreduce, 6, COMM(5), CT(2, 3), -1)
COLLECTIVE(Reduce_scatter, 6, COMM(5), SUM(2, MEMBERS, 3), -1)
COLLECTIVE(Reduce_scatter_block, 6, COMM(5), MEMBERS * CT(2, 3), -1)
COLLECTIVE(Scan, 6, COMM(5), CT(2, 3), -1)
COLLECTIVE(Exscan, 6, COMM(5), CT(2, 3), -1)
COLLECTIVE(Neighbor_allgather, 7, COMM(6), TO_SOME(NEIGHBOURS(6), CT(1, 2)), -1)
COLLECTIVE(Neighbor_allgatherv, 8, COMM(7), TO_SOME(NEIGHBOURS(7), CT(1, 2)), -1)
COLLECTIVE(Neighbor_alltoall, 7, COMM(6), TO_SOME(NEIGHBOURS(6), NEIGHBOURS(6) * CT(1, 2)), -1)
COLLECTIVE(Neighbor_alltoallv, 9, COMM(8), SUM(1, NEIGHBOURS(8), 3), -1)
COLLECTIVE(Neighbor_alltoallw, 9, COMM(8), SUMW(1, NEIGHBOURS(8), 3), -1)
/* …, root, request */
ICOLLECTIVE(Ibcast, 6, COMM(4), WITH_ROOT(3, CT(1, 2)), ROOT(3), 5)
ICOLLECTIVE(Igather, 9, COMM(7), TO_ROOT(6, PLACE(0, CT(4, 5), CT(1, 2))), ROOT(6), 8)
ICOLLECTIVE(Igatherv, 10, COMM(8), TO_ROOT(7, PLACE(0, AT(4, MY_RANK, 6), CT(1, 2))), ROOT(7), 9)
ICOLLECTIVE(Iscatter, 9, COMM(7), TO_ROOT(6, PLACE(3, CT(1, 2), CT(4, 5))), ROOT(6), 8)
ICOLLECTIVE(Iscatterv, 10, COMM(8), TO_ROOT(7, PLACE(4, AT(1, MY_RANK, 3), CT(5, 6))), ROOT(7), 9)
ICOLLECTIVE(Iallgather, 8, COMM(6), PLACE(0, CT(4, 5), CT(1, 2)), -1, 7)
ICOLLECTIVE(Iallgatherv, 9, COMM(7), PLACE(0, AT(4, MY_RANK, 6), CT(1, 2)), -1, 8)
ICOLLECTIVE(Ialltoall, 8, COMM(6), PEERS * PLACE(0, CT(4, 5), CT(1, 2)), -1, 7)
ICOLLECTIVE(Ialltoallv, 10, COMM(8), PLACE(0, SUM(5, PEERS, 7), SUM(1, PEERS, 3)), -1, 9)
ICOLLECTIVE(Ialltoallw, 10, COMM(8), PLACE(0, SUMW(5, PEERS, 7), SUMW(1, PEERS, 3)), -1, 9)
ICOLLECTIVE(Ireduce, 8, COMM(6), WITH_ROOT(5, CT(2, 3)), ROOT(5), 7)
ICOLLECTIVE(Iallreduce, 7, COMM(5), CT(2, 3), -1, 6)
ICOLLECTIVE(Ireduce_scatter, 7, COMM(5), SUM(2, MEMBERS, 3), -1, 6)
ICOLLECTIVE(Ireduce_scatter_block, 7, COMM(5), MEMBERS * CT(2, 3), -1, 6)
ICOLLECTIVE(Iscan, 7, COMM(5), CT(2, 3), -1, 6)
ICOLLECTIVE(Iexscan, 7, COMM(5), CT(2, 3), -1, 6)
ICOLLECTIVE(Ineighbor_allgather, 8, COMM(6), TO_SOME(NEIGHBOURS(6), CT(1, 2)), -1, 7)
ICOLLECTIVE(Ineighbor_allgatherv, 9, COMM(7), TO_SOME(NEIGHBOURS(7), CT(1, 2)), -1, 8)
ICOLLECTIVE(Ineighbor_alltoall, 8, COMM(6), TO_SOME(NEIGHBOURS(6), NEIGHBOURS(6) * CT(1, 2)), -1, 7)
ICOLLECTIVE(Ineighbor_alltoallv, 10, COMM(8), SUM(1, NEIGHBOURS(8), 3), -1, 9)
ICOLLECTIVE(Ineighbor_alltoallw, 10, COMM(8), SUMW(1, NEIGHBOURS(8), 3), -1, 9)

/* one-sided */
PLAIN(Put, 8, WIN(7), TO_PEER(3, CT(1, 2)))
PLAIN(Get, 8, WIN(7), TO_PEER(3, CT(1, 2)))
PLAIN(Accumulate, 9, WIN(8), TO_PEER(3, CT(1, 2)))
PLAIN(Get_accumulate, 12, WIN(11), TO_PEER(6, CT(4, 5)))
IPLAIN(Rput, 9, WIN(7), TO_PEER(3, CT(1, 2)), 8)
IPLAIN(Rget, 9, WIN(7), TO_PEER(3, CT(1, 2)), 8)
IPLAIN(Raccumulate, 10, WIN(8), TO_PEER(3, CT(1, 2)), 9)
IPLAIN(Rget_accumulate, 13, WIN(11), TO_PEER(6, CT(4, 5)), 12)
/* …, where the new window appears, label */
NEW_WINDOW(Win_create, 6, COMM(4), 5, "window")
NEW_WINDOW(Win_allocate, 6, COMM(3), 5, "window")
NEW_WINDOW(Win_allocate_shared, 6, COMM(3), 5, "window")

/* files */
PLAIN(File_read_at, 6, FILE_(0), CT(3, 4))
PLAIN(File_write_at, 6, FILE_(0), CT(3, 4))
COLLECTIVE(File_read_at_all, 6, FILE_(0), CT(3, 4), -1)
COLLECTIVE(File_write_at_all, 6, FILE_(0), CT(3, 4), -1)
IPLAIN(File_iread_at, 6, FILE_(0), CT(3, 4), 5)
IPLAIN(File_iwrite_at, 6, FILE_(0), CT(3, 4), 5)
ICOLLECTIVE(File_iread_at_all, 6, FILE_(0), CT(3, 4), -1, 5)
ICOLLECTIVE(File_iwrite_at_all, 6, FILE_(0), CT(3, 4), -1, 5)
PLAIN(File_read, 5, FILE_(0), CT(2, 3))
PLAIN(File_write, 5, FILE_(0), CT(2, 3))
COLLECTIVE(File_read_all, 5, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_write_all, 5, FILE_(0), CT(2, 3), -1)
IPLAIN(File_iread, 5, FILE_(0), CT(2, 3), 4)
IPLAIN(File_iwrite, 5, FILE_(0), CT(2, 3), 4)
ICOLLECTIVE(File_iread_all, 5, FILE_(0), CT(2, 3), -1, 4)
ICOLLECTIVE(File_iwrite_all, 5, FILE_(0), CT(2, 3), -1, 4)
PLAIN(File_read_shared, 5, FILE_(0), CT(2, 3))
PLAIN(File_write_shared, 5, FILE_(0), CT(2, 3))
IPLAIN(File_iread_shared, 5, FILE_(0), CT(2, 3), 4)
IPLAIN(File_iwrite_shared, 5, FILE_(0), CT(2, 3), 4)
COLLECTIVE(File_read_ordered, 5, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_write_ordered, 5, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_read_at_all_begin, 5, FILE_(0), CT(3, 4), -1)
COLLECTIVE(File_write_at_all_begin, 5, FILE_(0), CT(3, 4), -1)
COLLECTIVE(File_read_all_begin, 4, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_write_all_begin, 4, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_read_ordered_begin, 4, FILE_(0), CT(2, 3), -1)
COLLECTIVE(File_write_ordered_begin, 4, FILE_(0), CT(2, 3), -1)

#elif RS_SECTION == 2

/* …, dest, tag, source, tag, request */
ISENDRECV(Isendrecv, 12, COMM(10), CT(1, 2), 3, 4, 8, 9, 11)
ISENDRECV(Isendrecv_replace, 9, COMM(7), CT(1, 2), 3, 4, 5, 6, 8)
PROBE(Comm_detach_buffer, 3, COMM(0), NOBODY)
PROBE(Session_detach_buffer, 3, NONE, NOBODY)
/* …, root, request (after the info) */
COLLECTIVE_INIT(Bcast_init, 7, COMM(4), WITH_ROOT(3, CT(1, 2)), ROOT(3), 6)
COLLECTIVE_INIT(Gather_init, 10, COMM(7), TO_ROOT(6, PLACE(0, CT(4, 5), CT(1, 2))), ROOT(6), 9)
COLLECTIVE_INIT(Gatherv_init, 11, COMM(8), TO_ROOT(7, PLACE(0, AT(4, MY_RANK, 6), CT(1, 2))), ROOT(7), 10)
COLLECTIVE_INIT(Scatter_init, 10, COMM(7), TO_ROOT(6, PLACE(3, CT(1, 2), CT(4, 5))), ROOT(6), 9)
COLLECTIVE_INIT(Scatterv_init, 11, COMM(8), TO_ROOT(7, PLACE(4, AT(1, MY_RANK, 3), CT(5, 6))), ROOT(7), 10)
COLLECTIVE_INIT(Allgather_init, 9, COMM(6), PLACE(0, CT(4, 5), CT(1, 2)), -1, 8)
COLLECTIVE_INIT(Allgatherv_init, 10, COMM(7), PLACE(0, AT(4, MY_RANK, 6), CT(1, 2)), -1, 9)
COLLECTIVE_INIT(Alltoall_init, 9, COMM(6), PEERS * PLACE(0, CT(4, 5), CT(1, 2)), -1, 8)
COLLECTIVE_INIT(Alltoallv_init, 11, COMM(8), PLACE(0, SUM(5, PEERS, 7), SUM(1, PEERS, 3)), -1, 10)
COLLECTIVE_INIT(Alltoallw_init, 11, COMM(8), PLACE(0, SUMW(5, PEERS, 7), SUMW(1, PEERS, 3)), -1, 10)
COLLECTIVE_INIT(Reduce_init, 9, COMM(6), WITH_ROOT(5, CT(2, 3)), ROOT(5), 8)
COLLECTIVE_INIT(Allreduce_init, 8, COMM(5), CT(2, 3), -1, 7)
COLLECTIVE_INIT(Reduce_scatter_init, 8, COMM(5), SUM(2, MEMBERS, 3), -1, 7)
COLLECTIVE_INIT(Reduce_scatter_block_init, 8, COMM(5), MEMBERS * CT(2, 3), -1, 7)
COLLECTIVE_INIT(Scan_init, 8, COMM(5), CT(2, 3), -1, 7)
COLLECTIVE_INIT(Exscan_init, 8, COMM(5), CT(2, 3), -1, 7)
COLLECTIVE_INIT(Neighbor_allgather_init, 9, COMM(6), TO_SOME(NEIGHBOURS(6), CT(1, 2)), -1, 8)
COLLECTIVE_INIT(Neighbor_allgatherv_init, 10, COMM(7), TO_SOME(NEIGHBOURS(7), CT(1, 2)), -1, 9)
COLLECTIVE_INIT(Neighbor_alltoall_init, 9, COMM(6), TO_SOME(NEIGHBOURS(6), NEIGHBOURS(6) * CT(1, 2)), -1, 8)
COLLECTIVE_INIT(Neighbor_alltoallv_init, 11, COMM(8), SUM(1, NEIGHBOURS(8), 3), -1, 10)
COLLECTIVE_INIT(Neighbor_alltoallw_init, 11, COMM(8), SUMW(1, NEIGHBOURS(8), 3), -1, 10)

#elif RS_SECTION == 3

PLAIN(Comm_rank, 2, COMM(0), 0)
PLAIN(Comm_size, 2, COMM(0), 0)
PROBE(Probe, 4, COMM(2), FROM(0), FROM(1))
PLAIN(Iprobe, 5, COMM(2), 0)
PLAIN(Request_get_status, 3, NONE, 0)
/* collective, but in most libraries a matter of each rank: counted, not matched */
PROBE(Comm_set_info, 2, COMM(0), NOBODY)
PROBE(Win_set_info, 2, WIN(0), NOBODY)
PROBE(File_set_info, 2, FILE_(0), NOBODY)
PROBE(File_set_atomicity, 2, FILE_(0), NOBODY)
COLLECTIVE(Barrier, 1, COMM(0), 0, -1)
ICOLLECTIVE(Ibarrier, 2, COMM(0), 0, -1, 1)

/* communicators: …, where the new one appears, label */
NEW_COMM(Comm_dup, 2, COMM(0), 1, "dup")
NEW_COMM(Comm_dup_with_info, 3, COMM(0), 2, "dup")
NEW_COMM(Comm_create, 3, COMM(0), 2, "create")
NEW_COMM(Comm_split, 4, COMM(0), 3, "split")
NEW_COMM(Comm_split_type, 5, COMM(0), 4, "split_type")
NEW_COMM(Intercomm_merge, 3, COMM(0), 2, "merge")
NEW_COMM(Cart_create, 6, COMM(0), 5, "cart")
NEW_COMM(Cart_sub, 3, COMM(0), 2, "cart_sub")
NEW_COMM(Graph_create, 6, COMM(0), 5, "graph")
NEW_COMM(Dist_graph_create, 9, COMM(0), 8, "dist_graph")
NEW_COMM(Dist_graph_create_adjacent, 10, COMM(0), 9, "dist_graph")
/* not by all of the parent: …, where, label, tag */
NEW_COMM_APART(Comm_create_group, 4, COMM(0), 3, "create_group", (int)a2)
NEW_COMM_APART(Intercomm_create, 6, COMM(0), 5, "intercomm", (int)a4)
NEW_COMM_APART(Comm_spawn, 8, COMM(5), 6, "spawn", 0)
NEW_COMM_APART(Comm_spawn_multiple, 9, COMM(6), 7, "spawn", 0)
NEW_COMM_APART(Comm_accept, 5, COMM(3), 4, "accept", 0)
NEW_COMM_APART(Comm_connect, 5, COMM(3), 4, "connect", 0)
NEW_COMM_APART(Comm_join, 2, NONE, 1, "join", 0)
FREE_COMM(Comm_free)
FREE_COMM(Comm_disconnect)
PLAIN(Open_port, 2, NONE, 0)
PLAIN(Close_port, 1, NONE, 0)
PLAIN(Publish_name, 3, NONE, 0)
PLAIN(Unpublish_name, 3, NONE, 0)
PLAIN(Lookup_name, 3, NONE, 0)

/* one-sided */
PLAIN(Fetch_and_op, 7, WIN(6), TO_PEER(3, ONE(2)))
PLAIN(Compare_and_swap, 7, WIN(6), TO_PEER(4, ONE(3)))
NEW_WINDOW(Win_create_dynamic, 3, COMM(1), 2, "window")
PLAIN(Win_attach, 3, WIN(0), 0)
PLAIN(Win_detach, 2, WIN(0), 0)
COLLECTIVE(Win_fence, 2, WIN(1), 0, -1)
PLAIN(Win_post, 3, WIN(2), 0)
PLAIN(Win_start, 3, WIN(2), 0)
PLAIN(Win_complete, 1, WIN(0), 0)
PLAIN(Win_wait, 1, WIN(0), 0)
PLAIN(Win_test, 2, WIN(0), 0)
PLAIN(Win_lock, 4, WIN(3), 0)
PLAIN(Win_unlock, 2, WIN(1), 0)
PLAIN(Win_lock_all, 2, WIN(1), 0)
PLAIN(Win_unlock_all, 1, WIN(0), 0)
PLAIN(Win_flush, 2, WIN(1), 0)
PLAIN(Win_flush_all, 1, WIN(0), 0)
PLAIN(Win_flush_local, 2, WIN(1), 0)
PLAIN(Win_flush_local_all, 1, WIN(0), 0)
PLAIN(Win_sync, 1, WIN(0), 0)

/* files */
PLAIN(File_delete, 2, NONE, 0)
PLAIN(File_seek, 3, FILE_(0), 0)
PLAIN(File_get_size, 2, FILE_(0), 0)
COLLECTIVE(File_seek_shared, 3, FILE_(0), 0, -1)
COLLECTIVE(File_set_size, 2, FILE_(0), 0, -1)
COLLECTIVE(File_preallocate, 2, FILE_(0), 0, -1)
COLLECTIVE(File_set_view, 6, FILE_(0), 0, -1)
COLLECTIVE(File_sync, 1, FILE_(0), 0, -1)
COLLECTIVE(File_read_at_all_end, 3, FILE_(0), 0, -1)
COLLECTIVE(File_write_at_all_end, 3, FILE_(0), 0, -1)
COLLECTIVE(File_read_all_end, 3, FILE_(0), 0, -1)
COLLECTIVE(File_write_all_end, 3, FILE_(0), 0, -1)
COLLECTIVE(File_read_ordered_end, 3, FILE_(0), 0, -1)
COLLECTIVE(File_write_ordered_end, 3, FILE_(0), 0, -1)

/* written out in mpi_special.c and mpi_completion.c */
SPECIAL(Init, 2)
SPECIAL(Init_thread, 4)
SPECIAL(Finalize, 0)
SPECIAL(Abort, 2)
SPECIAL(Start, 1)
SPECIAL(Startall, 2)
SPECIAL(Wait, 2)
SPECIAL(Waitall, 3)
SPECIAL(Waitany, 4)
SPECIAL(Waitsome, 5)
SPECIAL(Test, 3)
SPECIAL(Testall, 4)
SPECIAL(Testany, 5)
SPECIAL(Testsome, 5)
SPECIAL(Request_free, 1)
SPECIAL(Cancel, 1)
SPECIAL(Mprobe, 5)
SPECIAL(Improbe, 6)
SPECIAL(Comm_idup, 3)
SPECIAL(Comm_set_name, 2)
SPECIAL(Type_free, 1)
SPECIAL(Win_free, 1)
SPECIAL(File_open, 5)
SPECIAL(File_close, 1)

#elif RS_SECTION == 4

COLLECTIVE_INIT(Barrier_init, 3, COMM(0), 0, -1, 2)
/* matched among themselves, in the order of these calls: counted, not logged as messages */
PSEND_INIT(Psend_init, 9, COMM(6), (uint64_t)(int)a1 * rs_bytes(thread, a2, a3), 4, 8)
PRECEIVE_INIT(Precv_init, 9, COMM(6), 8)
PLAIN(Pready, 2, NONE, 0)
PLAIN(Pready_range, 3, NONE, 0)
PLAIN(Pready_list, 3, NONE, 0)
PLAIN(Parrived, 3, NONE, 0)
PLAIN(Request_get_status_all, 4, NONE, 0)
PLAIN(Request_get_status_any, 5, NONE, 0)
PLAIN(Request_get_status_some, 5, NONE, 0)
PROBE(Buffer_flush, 0, NONE, NOBODY)
PROBE(Comm_flush_buffer, 1, COMM(0), NOBODY)
PROBE(Session_flush_buffer, 1, NONE, NOBODY)
NEW_COMM_APART(Comm_create_from_group, 5, NONE, 4, "from_group", FROM_TAG(1))
NEW_COMM_APART(Intercomm_create_from_groups, 8, NONE, 7, "from_groups", FROM_TAG(4))
SPECIAL(Comm_idup_with_info, 4)
SPECIAL(Session_init, 3)
SPECIAL(Session_finalize, 1)

#endif
