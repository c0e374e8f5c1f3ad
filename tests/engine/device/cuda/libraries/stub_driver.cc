// As much of CUDA's driver as cuDNN needs to build graphs without a GPU: code is taken, and nothing
// of it ever runs. Everything that needs a device says that there is none.
extern "C" {

constexpr int kSuccess = 0, kNoDevice = 100;
constexpr int kVersion = 13000;

int cuDriverGetVersion(int* version) {
  *version = kVersion;
  return kSuccess;
}

static char code;  // what handles point to

int cuLibraryLoadData(void** library) {
  *library = &code;
  return kSuccess;
}
int cuLibraryGetKernel(void** kernel) {
  *kernel = &code;
  return kSuccess;
}
int cuLibraryUnload() { return kSuccess; }
int cuKernelSetAttribute() { return kSuccess; }
int cuKernelGetAttribute(int* value) {
  *value = 0;
  return kSuccess;
}
int cuOccupancyMaxPotentialClusterSize(int* size) {
  *size = 8;
  return kSuccess;
}

int cuInit() { return kNoDevice; }
int cuGetErrorName() { return kNoDevice; }
int cuGetErrorString() { return kNoDevice; }
int cuDeviceGet() { return kNoDevice; }
int cuDeviceGetCount() { return kNoDevice; }
int cuCtxGetCurrent() { return kNoDevice; }
int cuCtxGetLimit() { return kNoDevice; }
int cuCtxPopCurrent() { return kNoDevice; }
int cuCtxPushCurrent() { return kNoDevice; }
int cuStreamGetCtx() { return kNoDevice; }
int cuLibraryLoadFromFile() { return kNoDevice; }
int cuLinkCreate() { return kNoDevice; }
int cuLinkAddData() { return kNoDevice; }
int cuLinkComplete() { return kNoDevice; }
int cuLinkDestroy() { return kNoDevice; }
int cuLaunchKernel() { return kNoDevice; }
int cuLaunchKernelEx() { return kNoDevice; }
int cuLaunchCooperativeKernel() { return kNoDevice; }

}  // extern "C"
