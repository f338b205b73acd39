package procfs

import "testing"

const (
	ctr      = "4bfc2c2d1ed3a1c8c1fbd0f6ec9d2f8ac1a8a8d6b9b5f3f0b1a9d8e7c6b5a493"
	outer    = "00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"
	pod      = "7c0a4f3e-52d1-4a1c-9f86-d081884c7d65"
	podSlice = "7c0a4f3e_52d1_4a1c_9f86_d081884c7d65"
)

// TestCgroup: /proc/PID/cgroup as five runtimes, systemd, Slurm and LXC leave it, on both versions.
func TestCgroup(t *testing.T) {
	const user = "/user.slice/user-1000.slice/user@1000.service"
	tests := []struct {
		name, file                 string
		path, container, pod, unit string
	}{
		{name: "nothing", file: ""},
		{name: "no line", file: "garbage\n4:memory\n:::\n"},
		{name: "root", file: "9:name=systemd:/\n4:memory:/\n0::/\n", path: "/"},
		{name: "session", file: "0::/user.slice/user-0.slice/session-3.scope\n",
			path: "/user.slice/user-0.slice/session-3.scope", unit: "session-3.scope"},
		{name: "service", file: "0::/system.slice/ollama.service\n", path: "/system.slice/ollama.service",
			unit: "ollama.service"},
		{name: "service, v1",
			file: "12:pids:/system.slice/ollama.service\n1:name=systemd:/system.slice/ollama.service\n",
			path: "/system.slice/ollama.service", unit: "ollama.service"},
		{name: "template with subgroup", file: "0::/system.slice/system-gpu.slice/gpu@3.service/payload\n",
			path: "/system.slice/system-gpu.slice/gpu@3.service/payload", unit: "gpu@3.service"},
		{name: "user's service", file: "0::" + user + "/app.slice/jupyter.service\n",
			path: user + "/app.slice/jupyter.service", unit: "jupyter.service"},
		{name: "user's scope", file: "0::" + user + "/app.slice/vte-spawn-1.scope\n",
			path: user + "/app.slice/vte-spawn-1.scope", unit: "user@1000.service"},
		{name: "Slurm, v2", file: "0::/system.slice/slurmstepd.scope/job_42/step_0/user/task_0\n",
			path: "/system.slice/slurmstepd.scope/job_42/step_0/user/task_0", unit: "slurmstepd.scope"},
		{name: "Slurm, v1", file: "9:devices:/slurm/uid_1000/job_42/step_0\n" +
			"4:memory:/slurm/uid_1000/job_42/step_0/task_0\n1:name=systemd:/\n0::/\n",
			path: "/slurm/uid_1000/job_42/step_0/task_0"},
		{name: "a controller without a place of its own", file: "8:hugetlb:/x\n9:net_cls,net_prio:/longer\n",
			path: "/longer"},

		{name: "docker, v1", file: "12:memory:/docker/" + ctr + "\n11:cpu,cpuacct:/docker/" + ctr +
			"\n1:name=systemd:/docker/" + ctr + "\n",
			path: "/docker/" + ctr, container: ctr},
		{name: "docker, v1 beside an unused v2", file: "4:memory:/docker/" + ctr +
			"\n0::/system.slice/containerd.service\n",
			path: "/docker/" + ctr, container: ctr},
		{name: "docker, v1 with systemd", file: "4:memory:/system.slice/docker-" + ctr + ".scope\n",
			path: "/system.slice/docker-" + ctr + ".scope", container: ctr},
		{name: "docker, v2 with systemd", file: "0::/system.slice/docker-" + ctr + ".scope\n",
			path: "/system.slice/docker-" + ctr + ".scope", container: ctr},
		{name: "docker, v2 with cgroupfs", file: "0::/docker/" + ctr + "\n", path: "/docker/" + ctr, container: ctr},
		{name: "docker without root", file: "0::" + user + "/user.slice/docker-" + ctr + ".scope\n",
			path: user + "/user.slice/docker-" + ctr + ".scope", container: ctr, unit: "user@1000.service"},
		{name: "docker in docker", file: "0::/system.slice/docker-" + outer + ".scope/docker/" + ctr + "\n",
			path: "/system.slice/docker-" + outer + ".scope/docker/" + ctr, container: ctr},
		{name: "docker in docker, v1", file: "4:memory:/docker/" + outer + "/docker/" + ctr + "\n",
			path: "/docker/" + outer + "/docker/" + ctr, container: ctr},
		{name: "systemd in docker", file: "0::/docker/" + ctr + "/system.slice/ollama.service\n",
			path: "/docker/" + ctr + "/system.slice/ollama.service", container: ctr, unit: "ollama.service"},

		{name: "containerd, Kubernetes v1", file: "4:memory:/kubepods/burstable/pod" + pod + "/" + ctr + "\n",
			path: "/kubepods/burstable/pod" + pod + "/" + ctr, container: ctr, pod: pod},
		{name: "containerd, Kubernetes v1, guaranteed", file: "4:memory:/kubepods/pod" + pod + "/" + ctr + "\n",
			path: "/kubepods/pod" + pod + "/" + ctr, container: ctr, pod: pod},
		{name: "containerd, Kubernetes v2", file: "0::/kubepods.slice/kubepods-burstable.slice/" +
			"kubepods-burstable-pod" +
			podSlice + ".slice/cri-containerd-" + ctr + ".scope\n",
			path: "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod" + podSlice +
				".slice/cri-containerd-" + ctr + ".scope",
			container: ctr, pod: pod},
		{name: "containerd, Kubernetes v2, guaranteed", file: "0::/kubepods.slice/kubepods-pod" + podSlice +
			".slice/cri-containerd-" + ctr + ".scope\n",
			path:      "/kubepods.slice/kubepods-pod" + podSlice + ".slice/cri-containerd-" + ctr + ".scope",
			container: ctr, pod: pod},
		{name: "containerd whose drivers differ", file: "0::/system.slice/containerd.service/kubepods-besteffort-pod" +
			podSlice + ".slice:cri-containerd:" + ctr + "\n",
			path: "/system.slice/containerd.service/kubepods-besteffort-pod" + podSlice +
				".slice:cri-containerd:" + ctr,
			container: ctr, pod: pod, unit: "containerd.service"},
		{name: "containerd, pod of a file",
			file: "0::/kubepods.slice/kubepods-burstable.slice/" +
				"kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-" + ctr + ".scope\n",
			path: "/kubepods.slice/kubepods-burstable.slice/" +
				"kubepods-burstable-pod0123456789abcdef0123456789abcdef.slice/cri-containerd-" + ctr + ".scope",
			container: ctr, pod: "0123456789abcdef0123456789abcdef"},
		{name: "kind: Kubernetes in docker", file: "0::/system.slice/docker-" + outer +
			".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + podSlice + ".slice/cri-containerd-" +
			ctr + ".scope\n",
			path: "/system.slice/docker-" + outer +
				".scope/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-pod" + podSlice +
				".slice/cri-containerd-" + ctr + ".scope",
			container: ctr, pod: pod},
		{name: "nerdctl, v2", file: "0::/system.slice/nerdctl-" + ctr + ".scope\n",
			path: "/system.slice/nerdctl-" + ctr + ".scope", container: ctr},
		{name: "nerdctl, v1", file: "4:memory:/default/" + ctr + "\n", path: "/default/" + ctr, container: ctr},

		{name: "cri-o, v1", file: "4:memory:/kubepods/besteffort/pod" + pod + "/crio-" + ctr + "\n",
			path: "/kubepods/besteffort/pod" + pod + "/crio-" + ctr, container: ctr, pod: pod},
		{name: "cri-o, v2", file: "0::/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + podSlice +
			".slice/crio-" + ctr + ".scope/container\n",
			path: "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-pod" + podSlice + ".slice/crio-" +
				ctr + ".scope/container",
			container: ctr, pod: pod},
		{name: "cri-o's monitor", file: "0::/kubepods.slice/kubepods-pod" + podSlice + ".slice/crio-conmon-" + ctr +
			".scope\n",
			path: "/kubepods.slice/kubepods-pod" + podSlice + ".slice/crio-conmon-" + ctr + ".scope", pod: pod,
			unit: "crio-conmon-" + ctr + ".scope"},

		{name: "podman, v1", file: "4:memory:/machine.slice/libpod-" + ctr + ".scope\n",
			path: "/machine.slice/libpod-" + ctr + ".scope", container: ctr},
		{name: "podman, v1 with cgroupfs", file: "4:memory:/libpod_parent/libpod-" + ctr + "\n",
			path: "/libpod_parent/libpod-" + ctr, container: ctr},
		{name: "podman, v2", file: "0::/machine.slice/libpod-" + ctr + ".scope/container\n",
			path: "/machine.slice/libpod-" + ctr + ".scope/container", container: ctr},
		{name: "podman without root", file: "0::" + user + "/user.slice/libpod-" + ctr + ".scope/container\n",
			path: user + "/user.slice/libpod-" + ctr + ".scope/container", container: ctr, unit: "user@1000.service"},
		{name: "podman below its service", file: "0::/system.slice/job.service/libpod-payload-" + ctr + "\n",
			path: "/system.slice/job.service/libpod-payload-" + ctr, container: ctr, unit: "job.service"},
		{name: "podman's monitor", file: "0::/machine.slice/libpod-conmon-" + ctr + ".scope\n",
			path: "/machine.slice/libpod-conmon-" + ctr + ".scope", unit: "libpod-conmon-" + ctr + ".scope"},

		{name: "LXC, v2", file: "0::/lxc.payload.gpu-box/system.slice/ollama.service\n",
			path: "/lxc.payload.gpu-box/system.slice/ollama.service", container: "gpu-box", unit: "ollama.service"},
		{name: "LXC, v1", file: "4:memory:/lxc/gpu-box\n", path: "/lxc/gpu-box", container: "gpu-box"},
		{name: "docker in LXC", file: "0::/lxc.payload.gpu-box/system.slice/docker-" + ctr + ".scope\n",
			path: "/lxc.payload.gpu-box/system.slice/docker-" + ctr + ".scope", container: ctr},

		{name: "63 digits", file: "0::/docker/" + ctr[1:] + "\n", path: "/docker/" + ctr[1:]},
		{name: "65 digits", file: "0::/docker/a" + ctr + "\n", path: "/docker/a" + ctr},
		{name: "a group that was removed", file: "0::/docker/" + ctr + " (deleted)\n", path: "/docker/" + ctr,
			container: ctr},
		{name: "colon in a name", file: "0::/system.slice/a:b.service\n", path: "/system.slice/a:b.service",
			unit: "a:b.service"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := CgroupOf(tt.file, nil)
			if c.Path != tt.path || c.Container() != tt.container || c.Pod() != tt.pod || c.Unit() != tt.unit {
				t.Errorf("path %q, container %q, pod %q, unit %q; want %q, %q, %q, %q",
					c.Path, c.Container(), c.Pod(), c.Unit(), tt.path, tt.container, tt.pod, tt.unit)
			}
		})
	}
}

// TestCgroupFromInside: the files as gputap reads them in a container with its own cgroup namespace, three levels below
// the root.
func TestCgroupFromInside(t *testing.T) {
	above := DepthsOf("4:memory:/\n0::/../../../init.scope\n")
	for _, tt := range []struct{ name, file, path, container, pod string }{
		{"another tree", "0::/../../../system.slice/docker-" + ctr + ".scope\n",
			"/system.slice/docker-" + ctr + ".scope", ctr, ""},
		{"the root", "0::/../../..\n", "/", "", ""},
		{"another pod", "0::/../../kubepods-pod" + podSlice + ".slice/cri-containerd-" + ctr + ".scope\n",
			"/../../kubepods-pod" + podSlice + ".slice/cri-containerd-" + ctr + ".scope", ctr, pod},
		{"gputap's own pod", "0::/../cri-containerd-" + ctr + ".scope\n", "/../cri-containerd-" + ctr + ".scope", ctr,
			""},
		{"gputap's own container", "0::/\n", "/", "", ""},
		{"a name that begins with dots", "0::/..x\n", "/..x", "", ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			c := CgroupOf(tt.file, above)
			if c.Path != tt.path || c.Container() != tt.container || c.Pod() != tt.pod {
				t.Errorf("path %q, container %q, pod %q", c.Path, c.Container(), c.Pod())
			}
		})
	}
}
