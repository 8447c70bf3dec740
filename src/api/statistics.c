/* statistics.c: struct belay_stats, gathered from engine, levels, regions and budget. */
#include "api/api_int.h"

void context_stats(struct belay *b, struct belay_stats *out)
{
        struct pool_info info;
        struct epoch_stats last;
        uint64_t published;
        uint64_t failed;
        uint64_t total;
        struct level_facts copy;
        engine_pool_info(b->engine, &info);
        levels_facts(&b->levels, "copy", &copy);
        engine_stats(b->engine, &last, &published, &failed, &total);
        *out = (struct belay_stats){
                .size = sizeof(*out),
                .checkpoints = published,
                .checkpoints_failed = failed,
                .restarts = b->restarts,
                .version = info.newest,
                .regions = b->regions.count,
                .region_bytes = b->regions.bytes,
                .total_written = total,
                .pool_bytes = info.file_bytes,
                .pool_used = info.used_bytes,
                .memory_bytes = b->budget.used,
                .memory_peak = b->budget.peak,
                .memory_budget = b->budget.limit,
                .last_blocked_ns = last.blocked_ns,
                .last_commit_ns = last.commit_ns,
                .last_wait_ns = last.wait_ns,
                .last_written = last.result.written_bytes,
                .last_data = last.result.data_bytes,
                .last_unchanged = last.result.unchanged_bytes,
                .last_zeros = last.result.zero_bytes,
                .last_units = last.units,
                .last_dirty = last.dirty_units,
                .last_direct = last.direct_units,
                .last_ahead = last.ahead_units,
                .last_ahead_missed = last.ahead_missed,
                .last_patches = last.patches,
                .last_early = last.early_units,
                .last_early_missed = last.early_missed,
                .last_waits = last.waits,
                .last_cows = last.cows,
                .last_avoided = last.avoided,
                .last_after = last.after,
                .last_faults = last.faults,
                .last_scanned = last.scanned_bytes,
                .last_copied = last.copied_bytes,
                .last_copy_peak = last.copy_peak_bytes,
                .last_compared = last.compared_regions,
                .last_predicted_ns = last.predicted_ns,
                .last_full_ns = last.predicted_full_ns,
                .copy_version = copy.newest,
                .copy_taken = copy.taken,
                .copy_failed = copy.failed,
                .copy_written = copy.written_bytes,
                .copy_data = copy.data_bytes,
                .pool_ahead = info.ahead_bytes,
        };
}

int belay_stats(struct belay *b, struct belay_stats *out)
{
        int rc = context_check(b);
        if (rc)
                return call_end(b, rc);
        struct belay_stats mine;
        triggers_note_outcome(b);
        context_stats(b, &mine);
        return call_end(b, sized_give(out, &mine, sizeof(mine), "belay_stats"));
}
