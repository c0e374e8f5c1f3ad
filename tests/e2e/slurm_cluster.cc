#include "tests/e2e/slurm_cluster.h"

#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "tests/support/wait_until.h"

namespace megatrain {

namespace {

namespace fs = std::filesystem;

constexpr char kControllerName[] = "control";
constexpr char kIp[] = "/usr/bin/ip";
constexpr char kPlugin[] = "/usr/lib/x86_64-linux-gnu/slurm-wlm/mpi_pmix.so";
// The plugin opens it by this name, which Debian has in the package of headers.
constexpr char kPmix[] = "/usr/lib/x86_64-linux-gnu/libpmix.so";

// %n is the node's name. DIRECTORY is replaced.
constexpr char kConfiguration[] = R"(
ClusterName=test
SlurmctldHost=control(127.0.0.1)
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket=DIRECTORY/munge.socket
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmctldPidFile=DIRECTORY/slurmctld.pid
SlurmdPidFile=DIRECTORY/slurmd.%n.pid
StateSaveLocation=DIRECTORY/state
SlurmdSpoolDir=DIRECTORY/spool.%n
TmpFS=DIRECTORY/tmp.%n
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
NodeName=n1 NodeAddr=127.0.0.1 Port=17001 CPUs=8
NodeName=n2 NodeAddr=127.0.0.1 Port=17002 CPUs=8
PartitionName=all Nodes=ALL Default=YES
)";

void WriteFile(const std::string& path, const std::string& text) {
  std::ofstream(path, std::ios::binary) << text;
}

}  // namespace

std::string SlurmCluster::Missing() {
  for (const char* const file : {"/usr/sbin/munged", "/usr/sbin/slurmctld", "/usr/sbin/slurmd",
                                 "/usr/bin/srun", "/usr/bin/sbatch", kIp, kPlugin, kPmix}) {
    if (access(file, F_OK) != 0) return absl::StrCat(file, " (deploy/install-deps.sh --tests)");
  }
  return "";
}

SlurmCluster::SlurmCluster(const std::string& directory) : directory_(directory) {
  for (const char* const name :
       {"", "state", "spool.n1", "spool.n2", "tmp.n1", "tmp.n2", "disk", "disk.n1", "disk.n2"}) {
    fs::create_directories(fs::path(directory) / name);
  }
  WriteFile(directory + "/slurm.conf",
            absl::StrReplaceAll(kConfiguration, {{"DIRECTORY", directory}}));
  WriteFile(directory + "/hosts", "127.0.0.1 localhost control n1 n2\n");
  EXPECT_EQ(mount((directory + "/hosts").c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr), 0);
  EXPECT_EQ(sethostname(kControllerName, sizeof(kControllerName) - 1), 0);
  std::random_device random;
  std::string key(64, '\0');
  for (char& byte : key) byte = static_cast<char>(random());
  const std::string munge = directory + "/munge";
  WriteFile(munge + ".key", key);
  chmod((munge + ".key").c_str(), 0600);

  setenv("SLURM_CONF", (directory + "/slurm.conf").c_str(), 1);
  setenv("OMPI_MCA_btl_tcp_if_include", "lo", 1);  // which it leaves out by itself

  // Slurm resolves addresses only where one is not loopback's own. This one is for documentation.
  EXPECT_EQ(Command({kIp, "address", "add", "192.0.2.1/32", "dev", "lo"}), "");

  Start("munged", {"/usr/sbin/munged", "--foreground", "--key-file=" + munge + ".key",
                   "--socket=" + munge + ".socket", "--pid-file=" + munge + ".pid",
                   "--seed-file=" + munge + ".seed", "--num-threads=1"});
  WaitUntil([&] { return fs::exists(munge + ".socket"); },
            [&] { return !daemons_.back()->Running(); });
  Start("slurmctld", {"/usr/sbin/slurmctld", "-D"});
  for (const std::string node : {"n1", "n2"}) {
    // Open MPI takes processes of one host name for neighbours, and Slurm's nodes have names.
    // Megatrain takes those of one boot for neighbours.
    WriteFile(directory + "/boot." + node, node);
    const std::string own = absl::StrReplaceAll(
        "hostname NODE && mount --bind DIRECTORY/boot.NODE /proc/sys/kernel/random/boot_id && "
        "mount --bind DIRECTORY/disk.NODE DIRECTORY/disk && exec /usr/sbin/slurmd -D -N NODE",
        {{"DIRECTORY", directory}, {"NODE", node}});
    Start("slurmd." + node, {"/usr/bin/unshare", "--uts", "--mount", "/bin/sh", "-c", own});
  }
}

void SlurmCluster::Start(const std::string& name, const std::vector<std::string>& arguments) {
  daemons_.push_back(std::make_unique<ChildProcess>(arguments, directory_ + "/" + name + ".log"));
}

std::string SlurmCluster::WaitUntilReady() {
  const auto ended = [&] {
    return std::any_of(daemons_.begin(), daemons_.end(),
                       [](const auto& daemon) { return !daemon->Running(); });
  };
  const auto ready = [&] {
    return Command({"/usr/bin/sinfo", "-h", "-N", "-o", "%t"}) == "idle\nidle";
  };
  if (WaitUntil(ready, ended)) return "";
  std::string logs;
  for (const auto& daemon : daemons_) absl::StrAppend(&logs, daemon->Output());
  return logs;
}

std::string SlurmCluster::Command(const std::vector<std::string>& arguments) {
  ChildProcess command(arguments, directory_ + "/command.log");
  command.Wait();
  std::string output = command.Output();
  if (absl::EndsWith(output, "\n")) output.pop_back();
  return output;
}

}  // namespace megatrain
