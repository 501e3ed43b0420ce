! Five all-reduces of three reals, two broadcasts of four integers, one ring of messages, one duplicate: in the language's
! three interfaces to MPI, chosen by the preprocessor.
program reduces
#if defined(WITH_F08)
  use mpi_f08
#elif defined(WITH_MODULE)
  use mpi
#endif
  implicit none
#if !defined(WITH_F08) && !defined(WITH_MODULE)
  include 'mpif.h'
#endif
#if defined(WITH_F08)
  type(MPI_Comm) :: copy
  type(MPI_Request) :: requests(2)
  type(MPI_Status) :: statuses(2)
#else
  integer :: copy, requests(2), statuses(MPI_STATUS_SIZE, 2)
#endif
  integer :: rank, ranks, error, i, message(4), received(4)
  real :: part(3), total(3)
  call MPI_Init(error)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, error)
  call MPI_Comm_size(MPI_COMM_WORLD, ranks, error)
  call MPI_Comm_dup(MPI_COMM_WORLD, copy, error)
  part = rank + 1
  message = rank
  do i = 1, 5
    call MPI_Allreduce(part, total, 3, MPI_REAL, MPI_SUM, copy, error)
  end do
  call MPI_Bcast(message, 4, MPI_INTEGER, 0, MPI_COMM_WORLD, error)
  call MPI_Bcast(message, 4, MPI_INTEGER, ranks - 1, MPI_COMM_WORLD, error)
  call MPI_Irecv(received, 4, MPI_INTEGER, mod(rank + ranks - 1, ranks), 7, copy, requests(1), error)
  call MPI_Isend(message, 4, MPI_INTEGER, mod(rank + 1, ranks), 7, copy, requests(2), error)
  call MPI_Waitall(2, requests, statuses, error)
  call MPI_Barrier(MPI_COMM_WORLD, error)
  call MPI_Comm_free(copy, error)
  call MPI_Finalize(error)
  print '(i0, a, i0, a, f4.1, a, i0)', rank, ' of ', ranks, ': ', total(2), ', ', received(4)
end program
