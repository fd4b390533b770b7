# docker build -t emu . && docker run --rm emu
FROM python:3.11-slim
WORKDIR /emu
COPY . .
# Every version that was tried together, those that build the core included. The image has
# no compiler: the build takes ziglang. torch is the build for CPUs, a twentieth as large.
ENV UV_CONSTRAINT=/emu/.constraints.txt PIP_NO_CACHE_DIR=1 UV_NO_CACHE=1
RUN pip install uv \
 && uv pip install --system --torch-backend cpu '.[train]' \
 && emu simulate golden
CMD ["emu", "run", "demo"]
