// Cuts a forked child off from the connections that are its parent's. It is a C interface that Python loads with
// ctypes.
//
// gRPC starts its threads again in a child before it looks whose connections it has. What its parent had not done yet
// at the fork is then done by both: the child takes bytes of an answer out of the parent's connection, and the parent
// waits for them until its deadline; or it sends bytes of its own in the midst of a request. (Seen once in 5,000 forks
// with grpcio 1.85.) So in the child other sockets stand in the place of these, before a thread of gRPC runs there.
//
// pthread_atfork calls the handlers of children in the order in which they were registered. This one is registered when
// the library is loaded, and gRPC's when the process makes its first channel. In a process that has made a channel
// before it loads this library the connections are cut off as well, but perhaps too late.
#ifndef CAIRN_PYTHON_NATIVE_FORKED_CHILD_H_
#define CAIRN_PYTHON_NATIVE_FORKED_CHILD_H_

#include <cstdint>

extern "C" {

// From now on forked children of this process are cut off from connections to the Unix socket at this path. The other
// side may see it in another directory, in one that is not here: so a connection to a socket of the same name is taken
// for one to it, unless that one can be seen here to be another. Returns 0, or -1 if the path has no name or is longer
// than that of a socket can be. Thread-safe.
int64_t cairn_keep_from_children(const char* path);

}  // extern "C"

#endif  // CAIRN_PYTHON_NATIVE_FORKED_CHILD_H_
