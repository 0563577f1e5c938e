#pragma once

// Bugs that can be planted in the cores, each the removal of one guard, to see that the simulator
// catches it (tests/sim). Outside the simulator's own build Planted() is a constant, and the
// compiler drops both the question and the bug.

namespace shardline {

enum class PlantedBug {
  kNone,

  // A stage, its ledger and its pages.
  kOpenIgnoresFence,             // A fenced epoch opens again.
  kOpenIgnoresIncarnation,       // An OPEN for an older life of the node is taken.
  kFenceLeavesNoTombstone,       // A fence for an unknown session is forgotten.
  kStepIgnoresEpoch,             // A step of an older epoch runs on the newer one's pages.
  kStepRunsTwice,                // A copy of a committed step is computed again.
  kStepDigestIgnored,            // Other content under a known key gets the old answer.
  kStepGapAccepted,              // A step runs before the one in front of it.
  kCertainFailureStaysInFlight,  // A step that failed for certain can never come again.
  kPagesFreedWhilePinned,        // A release does not wait for the running step.
  kVisibleBeforeComputed,        // Appended rows are committed when the step begins.
  kNoLocalDeadline,              // Pages wait for a message that may never come.
  kExpiredStepStarts,            // A step without budget is computed.
  kBudgetDoesNotShrink,          // The budget sent on is the one received.
  kFencedOutputForwarded,        // The output of a step fenced while it ran is sent on.
  kNonFiniteForwarded,           // NaN travels on.
  kResumeUnverified,             // Resumes without comparing chains.
  kResumeWithoutFence,           // Answers before the older connection is shut out.

  // The head.
  kCopyEndsTheOriginal,  // "In flight" about a copy fails the attempt.

  // Rounds.
  kPromotesWhateverIsStaged,  // A staged round is used for whichever round comes.
  kStageSurvivesFailure,      // A failed or cancelled round leaves what was staged with it.
  kPieceFailureRepeats,       // A failed piece does not keep the job's later pieces from running.
  kHaltForgetsQueued,         // A halt ends who runs, and not who waits.
  kDraftUnchecked,            // A draft is accepted although another token was sampled.
  kRejectedStays,             // Rejected drafts are not taken back from the KV.

  // Cached prefixes.
  kPinnedPageEvicted,    // A page that an attempt reads is handed to another.
  kCachedUncomputed,     // A page can be found before its rows are committed.
  kPrefixLongerThanHit,  // The head starts behind what the shortest stage has.

  // A session.
  kSuccessBeforeRecord,       // The client hears the end before its record is durable.
  kRestartLosesDeadline,      // A new attempt gets a fresh deadline.
  kRestartRepeatsTokens,      // Tokens below the next index are delivered again.
  kRestartForgetsSuspects,    // A new attempt may take the route that failed.
  kRestartsUnlimited,         // No bound on attempts.
  kPoisonUnlimited,           // A session may kill any number of nodes.
  kRefusedOpenLeaks,          // One refused OPEN leaves the other stages open.
  kCancelMissesLateOpens,     // Stages that have not answered their OPEN are not fenced.
  kFanOutStopsAtSilentStage,  // A stage that does not answer keeps the others from the fence.
  kTokensAfterTheEnd,         // A token after the outcome is fixed still goes out.

  // The ledger.
  kFinishOverwrites,     // A second terminal record replaces the first.
  kTermAndStateIgnored,  // Neither the term nor the open state is asked when finishing.
  kKeyForgotten,         // A repeated request runs again.

  // Membership.
  kArrivalCountsAsLife,   // Beats count without an echo.
  kSuccessorBeforeFence,  // A new life is welcomed before the old one's attempts are fenced.
  kWedgeGoesUnnoticed,    // A device without progress is healthy as long as it beats.

  kCount,
};

#ifdef SL_PLANTED_BUGS
// Of the thread that simulates.
inline thread_local PlantedBug planted_bug = PlantedBug::kNone;
inline bool Planted(PlantedBug bug) { return planted_bug == bug; }
#else
constexpr bool Planted(PlantedBug) { return false; }
#endif

}  // namespace shardline
