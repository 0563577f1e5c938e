#pragma once

// The heap of simulated worlds. A schedule builds a world of small objects and throws it away,
// hundreds of times a second on each thread: small blocks come from free lists of the thread's own
// and never go back to the system. It replaces operator new in the programs that link it; under a
// sanitizer it does nothing, so that every block is still watched.

namespace shardline::sim {

// Large blocks stay with the process, too.
void KeepTheHeap();

}  // namespace shardline::sim
