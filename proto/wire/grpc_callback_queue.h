#pragma once

// A trap of gRPC 1.51 that every server of ours must step around.

namespace shardline {

// gRPC ends its queue of callbacks with the queue's last user, and now and then that aborts the
// process (a reference count below zero). After this call a server that never ends, and that
// nobody can call, stays the last user. Idempotent; any thread.
void KeepCallbackQueue();

}  // namespace shardline
