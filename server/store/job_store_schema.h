// The job store's tables, and the steps that bring each older version to the next.
#ifndef MEGATRAIN_SERVER_STORE_JOB_STORE_SCHEMA_H_
#define MEGATRAIN_SERVER_STORE_JOB_STORE_SCHEMA_H_

#include <cstdint>

namespace megatrain {

// A number in the database's header that tells a job store from other programs' databases: "MgTr".
inline constexpr int64_t kJobStoreApplicationId = 0x4d675472;

// Entry i brings version i to version i + 1. The version is the number user_version in the
// database's header, which is 0 in a new file. Entries are added and never changed, because there
// are files of every version.
//
// Times are microseconds since 1970 (UTC); NULL = not yet. A request_id is NULL if none was given.
//
// The file does not shrink when jobs are deleted, but SQLite uses their pages for the next ones.
inline constexpr const char* kJobStoreMigrations[] = {
    R"sql(
CREATE TABLE jobs (
  number INTEGER PRIMARY KEY,
  id TEXT NOT NULL UNIQUE,
  display_name TEXT NOT NULL,
  user TEXT NOT NULL,
  uid INTEGER NOT NULL,
  request_id TEXT,
  file_yaml TEXT NOT NULL,
  file_name TEXT NOT NULL,
  base_directory TEXT NOT NULL,
  priority INTEGER NOT NULL,
  pool_bytes INTEGER NOT NULL,
  checkpoint_bytes INTEGER NOT NULL,
  state TEXT NOT NULL,
  reason TEXT NOT NULL,
  reason_text TEXT NOT NULL,
  created INTEGER,
  updated INTEGER,
  started INTEGER,
  ended INTEGER,
  version INTEGER NOT NULL,
  attempts INTEGER NOT NULL,
  step INTEGER NOT NULL,
  total_steps INTEGER NOT NULL,
  checkpoint_step INTEGER NOT NULL,
  release_host INTEGER NOT NULL,
  host_retained INTEGER NOT NULL,
  deaths INTEGER NOT NULL,
  death_step INTEGER NOT NULL,
  death_checkpoint_step INTEGER NOT NULL,
  UNIQUE (uid, request_id)
) STRICT;
CREATE TABLE overrides (
  job INTEGER NOT NULL REFERENCES jobs (number),
  position INTEGER NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job, position)
) STRICT, WITHOUT ROWID;
CREATE TABLE events (
  job INTEGER NOT NULL REFERENCES jobs (number),
  sequence INTEGER NOT NULL,
  time INTEGER NOT NULL,
  from_state TEXT,
  to_state TEXT NOT NULL,
  reason TEXT NOT NULL,
  text TEXT NOT NULL,
  PRIMARY KEY (job, sequence)
) STRICT, WITHOUT ROWID;
)sql",
    // 1: the job was deleted; its files are being removed, then the row is.
    R"sql(
ALTER TABLE jobs ADD COLUMN deleted INTEGER NOT NULL DEFAULT 0;
)sql",
    // 2: sections with a comma between two.
    R"sql(
ALTER TABLE jobs ADD COLUMN allow_change TEXT NOT NULL DEFAULT '';
)sql",
};
inline constexpr int64_t kJobStoreVersion =
    sizeof(kJobStoreMigrations) / sizeof(kJobStoreMigrations[0]);

}  // namespace megatrain

#endif  // MEGATRAIN_SERVER_STORE_JOB_STORE_SCHEMA_H_
