// A device plugin that offers /dev/fuse: FOLDER RESOURCE COUNT.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

type plugin struct {
	api.UnimplementedDevicePluginServer
	count int
}

func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *api.Empty, stream api.DevicePlugin_ListAndWatchServer) error {
	var devices []*api.Device
	for i := 0; i < p.count; i++ {
		devices = append(devices, &api.Device{ID: strconv.Itoa(i), Health: api.Healthy})
	}
	if err := stream.Send(&api.ListAndWatchResponse{Devices: devices}); err != nil {
		return err
	}
	<-stream.Context().Done()
	return nil
}

func (p *plugin) Allocate(_ context.Context, r *api.AllocateRequest) (*api.AllocateResponse, error) {
	answer := &api.AllocateResponse{}
	for range r.ContainerRequests {
		answer.ContainerResponses = append(answer.ContainerResponses, &api.ContainerAllocateResponse{
			Devices: []*api.DeviceSpec{{ContainerPath: "/dev/fuse", HostPath: "/dev/fuse", Permissions: "rw"}}})
	}
	return answer, nil
}

func main() {
	folder, resource := os.Args[1], os.Args[2]
	count, err := strconv.Atoi(os.Args[3])
	check(err)
	path := filepath.Join(folder, "fuse.sock")
	os.Remove(path)
	listener, err := net.Listen("unix", path)
	check(err)
	server := grpc.NewServer()
	api.RegisterDevicePluginServer(server, &plugin{count: count})
	go func() { check(server.Serve(listener)) }()
	line, err := grpc.NewClient("unix:"+filepath.Join(folder, "kubelet.sock"),
		grpc.WithTransportCredentials(insecure.NewCredentials()))
	check(err)
	_, err = api.NewRegistrationClient(line).Register(context.Background(),
		&api.RegisterRequest{Version: api.Version, Endpoint: "fuse.sock", ResourceName: resource})
	check(err)
	fmt.Println("registered")
	select {}
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
