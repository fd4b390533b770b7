# docker build -t emu . && docker run --rm emu
FROM python:3.11-slim
WORKDIR /emu
COPY . .
# Every version that was tried together, those that build the core included. The image has
# no compiler: the build takes ziglang. torch first: dgl finds it installed.
ENV PIP_CONSTRAINT=/emu/.constraints.txt PIP_NO_CACHE_DIR=1
RUN pip install torch \
 && pip install '.[train]' \
 && emu simulate golden
CMD ["emu", "run", "demo"]
